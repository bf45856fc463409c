"""The error that started it all."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_backfill._text import line
from airflow_provider_backfill.exceptions import BackfillError


def innermost(error: BaseException) -> BaseException:
    """The error that started it: dlt wraps what a source or a database raises several times.

    An error of this package speaks for itself, and for its own cause.
    """
    while not isinstance(error, BackfillError):
        wrapped = getattr(error, "dbapi_exception", None) or getattr(error, "exception", None)
        cause = error.__cause__ or wrapped
        if not isinstance(cause, BaseException) or cause is error:
            break
        error = cause
    return error


def root_cause(error: BaseException, redact: Callable[[str], str] = str) -> str:
    """``Type: message`` of the error that started it, on one line; secrets go before it is cut to length."""
    cause = innermost(error)
    return f"{type(cause).__name__}: {line(redact(str(cause)))}".rstrip(": ")

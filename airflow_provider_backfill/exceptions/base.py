"""The roots of the tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from airflow_provider_backfill._text import masked


def _restore(cls: type[BackfillError], args: tuple[Any, ...], state: dict[str, Any]) -> BackfillError:
    error = cls.__new__(cls, *args)
    error.__dict__.update(state)
    return error


class BackfillError(Exception):
    """The root of the tree; catching it catches whatever this package raises on purpose.

    Args:
        message: What happened, why, and what to do. Subclasses take values instead and write it themselves.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        super().__init__(masked(message))

    def __post_init__(self) -> None:
        BackfillError.__init__(self, self._message())

    def _message(self) -> str:
        raise NotImplementedError

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # The default calls the class with the message alone, which is no value of any class below.
        return _restore, (type(self), self.args, dict(self.__dict__))


class RefusedError(BackfillError):
    """Refused before anything was written. A retry cannot help."""

    exit_code: ClassVar[int] = 2

"""The roots of the tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from airflow_provider_backfill._text import masked


def docs_of(rule: str) -> str:
    """Where the page about refusals explains a rule, or a class of refusals."""
    return f"docs/refusals.md#{rule.lower()}"


def see(rule: str) -> str:
    """How a message ends that a rule, or a class of refusals, stands behind."""
    return f" (see {docs_of(rule)})"


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
        super().__init__(f"{masked(message)}{self._ending()}")

    def __post_init__(self) -> None:
        BackfillError.__init__(self, self._message())

    def _message(self) -> str:
        raise NotImplementedError

    def _ending(self) -> str:
        return ""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # The default calls the class with the message alone, which is no value of any class below.
        return _restore, (type(self), self.args, dict(self.__dict__))


class RefusedError(BackfillError):
    """Refused before anything was written. A retry cannot help. Its message ends with a link to the docs."""

    exit_code: ClassVar[int] = 2

    def _ending(self) -> str:
        return see(type(self).__name__)

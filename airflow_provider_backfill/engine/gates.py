"""Assertions about the rows of a chunk, as people and machines write them (pure).

As plain data, an assertion is a dict with one key that names it, and ``on_failure`` beside it::

    {"events": [
        {"min_rows_per_load": 1},
        {"max_rows_per_load": 100000},
        {"unique_columns": ["id"], "on_failure": "quarantine"},
        {"not_null_columns": ["user_id"], "on_failure": "warn"},
        {"accepted_values": {"status": ["open", "closed"]}},
        {"cursor_within_chunk": true},
        {"sql": "amount >= 0"},
        {"python": "checks:has_sane_email"}
    ]}

The keys on the outside are resources, ``*`` all that are selected; a list alone is for all.
"""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

from airflow_provider_backfill.engine.cursors import EVERY_RESOURCE
from airflow_provider_backfill.exceptions import GateError

#: What `AcceptedValues` compares with.
Scalar: TypeAlias = str | int | float | bool
#: Assertions by resource, ``*`` for all that are selected.
Assertions: TypeAlias = Mapping[str, tuple["Assertion", ...]]


class OnFailure(StrEnum):
    """What becomes of rows that do not pass an assertion."""

    FAIL = "fail"
    QUARANTINE = "quarantine"
    WARN = "warn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion(ABC):
    """What must hold for the rows of one resource in one chunk.

    Args:
        on_failure: ``fail``: the attempt fails and nothing is published. ``quarantine``: the rows that do not
            pass go to ``_dlt_rejected`` instead. ``warn``: a line in the log. Default ``fail``.

    Raises:
        GateError: ``on_failure`` or another value cannot be used. So do all subclasses.
    """

    #: What it is called as plain data and in ``_dlt_rejected``.
    name: ClassVar[str]
    #: It is about single rows, so that some may pass and others not.
    about_rows: ClassVar[bool] = True

    on_failure: str = OnFailure.FAIL

    def __post_init__(self) -> None:
        if self.on_failure not in list(OnFailure):
            reason = f"has on_failure {self.on_failure!r}"
            raise GateError(self.name, reason, f"pass {' or '.join(OnFailure)}")
        if self.on_failure == OnFailure.QUARANTINE and not self.about_rows:
            reason = "cannot quarantine, as it is about all rows together and none is to blame"
            raise GateError(self.name, reason, "pass on_failure 'fail' or 'warn'")
        remedy = self._remedy()
        if remedy:
            raise GateError({self.name: self.value}, "cannot be used", remedy)

    @classmethod
    @abstractmethod
    def of_value(cls, value: Any, on_failure: str) -> Assertion:
        """Read what stands behind its name in plain data."""

    @property
    @abstractmethod
    def value(self) -> Any:
        """What stands behind its name in plain data."""

    @abstractmethod
    def _remedy(self) -> str | None:
        """What to pass instead, if a value cannot be used."""

    def __str__(self) -> str:
        shown = self.value if isinstance(self.value, str) else json.dumps(self.value)
        return f"{self.name}({shown})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowCount(Assertion):
    about_rows: ClassVar[bool] = False

    rows: int

    @classmethod
    def of_value(cls, value: Any, on_failure: str) -> Assertion:
        # Templates make texts of numbers.
        digits = isinstance(value, str) and value.strip().isdecimal()
        return cls(rows=int(value) if digits else value, on_failure=on_failure)

    @property
    def value(self) -> int:
        return self.rows

    def _remedy(self) -> str | None:
        fits = isinstance(self.rows, int) and not isinstance(self.rows, bool) and self.rows >= 0
        return None if fits else "pass a whole number, at least 0"


class MinRows(_RowCount):
    """The resource has at least so many ``rows``, nested ones not counted."""

    name = "min_rows_per_load"


class MaxRows(_RowCount):
    """The resource has at most so many ``rows``, nested ones not counted."""

    name = "max_rows_per_load"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns(Assertion):
    columns: tuple[str, ...]

    @classmethod
    def of_value(cls, value: Any, on_failure: str) -> Assertion:
        return cls(columns=_names(value), on_failure=on_failure)

    @property
    def value(self) -> list[str]:
        return list(self.columns)

    def _remedy(self) -> str | None:
        fits = self.columns and all(isinstance(name, str) and name.strip() for name in self.columns)
        return None if fits else "pass the names of columns, e.g. ['id']"


class UniqueColumns(_Columns):
    """No two rows of the chunk have the same values in these ``columns``.

    Of several, the one that was extracted first passes. Rows with a null in one of them pass.
    """

    name = "unique_columns"


class NotNullColumns(_Columns):
    """Every row has values in these ``columns``."""

    name = "not_null_columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedValues(Assertion):
    """The ``column`` of every row has one of these ``values``, or is null."""

    name: ClassVar[str] = "accepted_values"

    column: str
    values: tuple[Scalar, ...]

    @classmethod
    def of_value(cls, value: Any, on_failure: str) -> Assertion:
        if not isinstance(value, Mapping) or len(value) != 1:
            remedy = "pass a column and its values, e.g. {'status': ['open', 'closed']}"
            raise GateError({cls.name: value}, "cannot be used", remedy)
        [(column, values)] = value.items()
        listed = isinstance(values, Collection) and not isinstance(values, str)
        return cls(column=column, values=tuple(values) if listed else (values,), on_failure=on_failure)

    @property
    def value(self) -> dict[str, list[Scalar]]:
        return {self.column: list(self.values)}

    def _remedy(self) -> str | None:
        if not isinstance(self.column, str) or not self.column.strip():
            return "pass the name of a column"
        fits = self.values and all(isinstance(value, str | int | float) for value in self.values)
        return None if fits else "pass texts, numbers or booleans; a null passes anyway"


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorWithinChunk(Assertion):
    """Every row lies in the chunk, by its ``column``; default None, the cursor of the resource."""

    name: ClassVar[str] = "cursor_within_chunk"

    column: str | None = None

    @classmethod
    def of_value(cls, value: Any, on_failure: str) -> Assertion:
        return cls(column=None if value is True else value, on_failure=on_failure)

    @property
    def value(self) -> str | bool:
        return True if self.column is None else self.column

    def _remedy(self) -> str | None:
        fits = self.column is None or (isinstance(self.column, str) and self.column.strip())
        return None if fits else "pass the name of a column, or true for the cursor of the resource"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlPredicate(Assertion):
    """The predicate ``sql`` is true for every row, or null. It may name the columns of the table."""

    name: ClassVar[str] = "sql"

    sql: str

    @classmethod
    def of_value(cls, value: Any, on_failure: str) -> Assertion:
        return cls(sql=value, on_failure=on_failure)

    @property
    def value(self) -> str:
        return self.sql

    def _remedy(self) -> str | None:
        fits = isinstance(self.sql, str) and self.sql.strip()
        return None if fits else "pass a predicate over the columns of a row, e.g. 'amount >= 0'"


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonPredicate(Assertion):
    """The function ``module:function`` returns something true for every row, which it gets as a dict."""

    name: ClassVar[str] = "python"

    reference: str

    @classmethod
    def of_value(cls, value: Any, on_failure: str) -> Assertion:
        return cls(reference=value, on_failure=on_failure)

    @property
    def value(self) -> str:
        return self.reference

    def _remedy(self) -> str | None:
        parts = self.reference.split(":") if isinstance(self.reference, str) else []
        return None if len(parts) == 2 and all(parts) else "pass module:function, e.g. 'checks:has_email'"

    def function(self) -> Callable[[Mapping[str, Any]], object]:
        """Import it.

        Raises:
            GateError: There is no such function.
        """
        module, _, attribute = self.reference.partition(":")
        try:
            found: Any = getattr(importlib.import_module(module), attribute)
        except Exception as error:
            reason = f"cannot be imported: {type(error).__name__}: {error}"
            remedy = "pass module:function that can be imported where the chunks run"
            raise GateError({self.name: self.reference}, reason, remedy) from error
        if not callable(found):
            reason = f"is a {type(found).__name__}"
            raise GateError({self.name: self.reference}, reason, "pass a function of one row")
        return found  # type: ignore[no-any-return]


_KINDS: Mapping[str, type[Assertion]] = {
    kind.name: kind
    for kind in (
        MinRows,
        MaxRows,
        UniqueColumns,
        NotNullColumns,
        AcceptedValues,
        CursorWithinChunk,
        SqlPredicate,
        PythonPredicate,
    )
}


def parse_assertions(given: object) -> Assertions:
    """Read assertions from plain data.

    Args:
        given: As the head of this module shows, or the same as JSON text; None or an empty one for none.

    Raises:
        GateError: Something in it is no assertion.
    """
    if isinstance(given, str):
        try:
            given = json.loads(given.strip() or "null")
        except ValueError as error:
            raise GateError(given, f"is no JSON: {error}", "pass a JSON object or list") from None
    if not given:
        return {}
    if not isinstance(given, Mapping):
        given = {EVERY_RESOURCE: given}
    return {str(resource): _parse_list(str(resource), listed) for resource, listed in given.items()}


def _parse_list(resource: str, given: object) -> tuple[Assertion, ...]:
    if isinstance(given, Mapping):
        given = [given]
    if not isinstance(given, Sequence) or isinstance(given, str):
        remedy = "pass a list of assertions for each resource, e.g. {'events': [{'min_rows_per_load': 1}]}"
        raise GateError({resource: given}, "is no list", remedy)
    return tuple(_parse_one(item) for item in given)


def _parse_one(given: object) -> Assertion:
    if isinstance(given, Assertion):
        return given
    kinds = ", ".join(_KINDS)
    if not isinstance(given, Mapping):
        raise GateError(given, "is no dict", f"pass a dict with one of {kinds}, and on_failure")
    names = [name for name in given if name != "on_failure"]
    if len(names) != 1 or names[0] not in _KINDS:
        reason = "is unknown" if len(names) == 1 else f"has {len(names)} names"
        raise GateError(dict(given), reason, f"pass one of {kinds}, and on_failure beside it")
    return _KINDS[names[0]].of_value(given[names[0]], given.get("on_failure", OnFailure.FAIL))


def _names(value: object) -> tuple[Any, ...]:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(","))
    return tuple(value) if isinstance(value, Collection) else (value,)


def check_assertions(assertions: Assertions, resources: Collection[str]) -> None:
    """Refuse assertions that a source with these resources cannot have; imports predicates.

    Raises:
        GateError: There is no such resource, or no such function.
    """
    for resource, listed in assertions.items():
        if resource != EVERY_RESOURCE and resource not in resources:
            known = ", ".join(sorted(resources))
            raise GateError(resource, "is for a resource that the source does not have", f"it has: {known}")
        for assertion in listed:
            if isinstance(assertion, PythonPredicate):
                assertion.function()

"""The rules that need the source alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any, TypeAlias

from airflow_provider_backfill.engine.preflight.subject import Subject
from airflow_provider_backfill.exceptions import Finding

Rule: TypeAlias = Callable[[Subject], Iterator[Finding]]


def unbound(subject: Subject) -> Iterator[Finding]:
    pipe: Any = subject.resource._pipe
    while pipe is not None:
        if callable(pipe.gen):
            try:
                # A transformer is called with its parent's item.
                inspect.signature(pipe.gen).bind(*([None] if pipe.has_parent else []))
            except TypeError as error:
                yield Finding(
                    rule="unbound",
                    resource=pipe.name,
                    message=f"its function is not called yet: {error}",
                    remedy="pass its arguments with the source, or call it where the source is made",
                )
        pipe = pipe.parent


def no_cursor(subject: Subject) -> Iterator[Finding]:
    if not subject.cursors:
        yield Finding(
            rule="no-cursor",
            resource=subject.name,
            message="it has no incremental cursor, so every chunk would load all of its rows",
            remedy="declare one with its type, e.g. dlt.sources.incremental[datetime]('updated_at'), "
            "or leave the resource out",
        )


def cursor_type(subject: Subject) -> Iterator[Finding]:
    for cursor in subject.cursors:
        if cursor.incremental is None or subject.has_format(cursor):
            continue
        kind: Any = cursor.incremental.get_incremental_value_type()
        if isinstance(kind, type) and issubclass(kind, date | int | float) and kind is not bool:
            continue
        yield Finding(
            rule="cursor-type",
            resource=subject.name,
            message=f"its cursor {cursor.incremental.cursor_path!r} is {_described(kind)}, "
            "which dlt cannot bound by the times of a chunk",
            remedy="say what its values look like with cursor_format, or yield datetimes and say so, e.g. "
            "dlt.sources.incremental[datetime]('updated_at')",
        )


def _described(kind: Any) -> str:
    if kind is Any:
        return "untyped"
    if kind is str:
        return "a text"
    return f"of type {kind.__name__ if isinstance(kind, type) else kind}"


def cursor_unit(subject: Subject) -> Iterator[Finding]:
    for cursor in subject.cursors:
        if cursor.incremental is None or subject.has_format(cursor):
            continue
        kind: Any = cursor.incremental.get_incremental_value_type()
        if not isinstance(kind, type) or not issubclass(kind, int | float) or kind is bool:
            continue
        # A window of whole numbers is of the same kind as an id.
        if subject.whole and issubclass(kind, int):
            continue
        yield Finding(
            rule="cursor-unit",
            resource=subject.name,
            message=f"its cursor {cursor.incremental.cursor_path!r} is a number without a unit, which dlt "
            "takes for seconds since 1970: of anything else, milliseconds or ids, a chunk loads nothing",
            remedy="declare cursor_format, e.g. 'epoch_s' or 'epoch_ms'; if the numbers are ids, 'id' and a "
            "window of whole numbers",
        )


def cursor_range(subject: Subject) -> Iterator[Finding]:
    for cursor in subject.cursors:
        found = cursor.incremental
        if found is not None and (found.range_start != "closed" or found.range_end != "open"):
            yield Finding(
                rule="cursor-range",
                resource=subject.name,
                message=f"its incremental has range_start={found.range_start!r} and "
                f"range_end={found.range_end!r}, so a row on the bound of two chunks is loaded twice or "
                "never",
                remedy="leave both at their defaults, 'closed' and 'open'",
            )


def last_value_func(subject: Subject) -> Iterator[Finding]:
    for cursor in subject.cursors:
        if cursor.incremental is not None and cursor.incremental.last_value_func is not max:
            yield Finding(
                rule="last-value-func",
                resource=subject.name,
                message="its incremental has a last_value_func other than max, under which a chunk loads "
                "nothing",
                remedy="leave last_value_func at its default, max",
            )


def missing_cursor_values(subject: Subject) -> Iterator[Finding]:
    for cursor in subject.cursors:
        if cursor.incremental is not None and cursor.incremental.on_cursor_value_missing == "include":
            yield Finding(
                rule="missing-cursor-values",
                resource=subject.name,
                message="its incremental includes rows without a cursor value, which every chunk would load",
                remedy="set on_cursor_value_missing to 'exclude' or 'raise'",
            )


def not_schedulable(subject: Subject) -> Iterator[Finding]:
    from dlt.extract.incremental import Incremental

    # Older versions of dlt, whose default is False, let the bounds of an attempt come before it.
    obeyed = Incremental.allow_external_schedulers is None
    if obeyed and any(cursor.schedulable is False for cursor in subject.cursors):
        yield Finding(
            rule="not-schedulable",
            resource=subject.name,
            message="its incremental has allow_external_schedulers=False, so every chunk would load all rows",
            remedy="remove that argument or set it to True",
        )


def replaces(subject: Subject) -> Iterator[Finding]:
    disposition, strategy = subject.disposition
    if disposition == "replace":
        yield Finding(
            rule="replace",
            resource=subject.name,
            message="its write disposition is 'replace', so each chunk would delete the ones before it",
            remedy="use 'append', or 'merge' with a primary or merge key",
        )
    if disposition == "merge" and strategy == "scd2":
        yield Finding(
            rule="scd2",
            resource=subject.name,
            message="its merge strategy is 'scd2', so each chunk would retire the rows of the others",
            remedy="use merge strategy 'delete-insert' or 'upsert' for the backfill",
        )


def keyless_merge(subject: Subject) -> Iterator[Finding]:
    disposition, strategy = subject.disposition
    if disposition != "merge" or strategy == "scd2":
        return
    hints = subject.resource._hints or {}
    columns = hints.get("columns") or {}
    keyed = any(hints.get(key) for key in ("primary_key", "merge_key")) or (
        isinstance(columns, dict)
        and any(column.get(key) for column in columns.values() for key in ("primary_key", "merge_key"))
    )
    if not keyed:
        table = subject.resource.table_name
        yield Finding(
            rule="keyless-merge",
            resource=subject.name,
            message=f"it merges into table {table!s} without a key, so a retry doubles rows",
            remedy="declare primary_key or merge_key, or use 'append'",
        )


#: What refuses a source, in the order in which findings are said.
RULES: tuple[Rule, ...] = (
    unbound,
    no_cursor,
    cursor_type,
    cursor_unit,
    cursor_range,
    last_value_func,
    missing_cursor_values,
    not_schedulable,
    replaces,
    keyless_merge,
)


def lag(subject: Subject) -> Iterator[Finding]:
    for cursor in subject.cursors:
        if cursor.incremental is not None and cursor.incremental.lag:
            yield Finding(
                rule="lag",
                resource=subject.name,
                message=f"its incremental has lag={cursor.incremental.lag:g}, which dlt ignores between the "
                "bounds of a chunk, so no chunk reaches back behind its start",
                remedy="start the window earlier if rows before it are to be loaded again",
            )


#: What is said and refuses nothing.
WARNINGS: tuple[Rule, ...] = (lag,)

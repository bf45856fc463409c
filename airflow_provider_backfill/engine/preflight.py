"""Everything that is refused after a look at the source: one rule a function, all findings at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, get_args

from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.exceptions import Finding, PreflightError

if TYPE_CHECKING:
    from dlt.extract.resource import DltResource
    from dlt.extract.source import DltSource


def cursor_of(resource: DltResource) -> Any | None:
    """The incremental that bounds a resource: its own, or for a transformer the one of the nearest parent."""
    from dlt.extract.incremental import Incremental, IncrementalResourceWrapper

    pipe: Any = resource._pipe
    owner: Any = resource
    while pipe is not None:
        found = pipe.get_by_type(IncrementalResourceWrapper, Incremental)
        if isinstance(found, IncrementalResourceWrapper):
            # What stands as an argument's default is put into the wrapper only when the extraction begins.
            given = getattr(owner, "_explicit_args", None) or {}
            found = found.incremental or _argument(pipe.gen, given)
        if found is not None:
            return found
        pipe, owner = pipe.parent, getattr(owner, "_parent", None)
    return None


def _argument(function: Callable[..., Any], given: Mapping[str, Any]) -> Any | None:
    """The incremental that a resource's function will be called with; None if there will be none."""
    from dlt.extract.incremental import Incremental, IncrementalResourceWrapper

    # dlt hides the arguments of a function that it has bound.
    signature = inspect.signature(inspect.unwrap(function))
    parameter = IncrementalResourceWrapper.get_incremental_arg(signature)
    if parameter is None:
        return None
    passed, default = given.get(parameter.name), parameter.default
    if isinstance(default, Incremental) and not hasattr(default, "__orig_class__"):
        # As dlt does when the extraction begins: the annotation gives the type that the default lacks.
        default = copy(default)
        if get_args(parameter.annotation):
            default.__orig_class__ = parameter.annotation
    if isinstance(passed, Incremental):
        return default.merge(passed) if isinstance(default, Incremental) else passed
    # Anything else is dlt's mark for a value from its configuration.
    return None if default is inspect.Parameter.empty else default


def disposition_of(resource: DltResource) -> tuple[str, str | None]:
    """The write disposition and the merge strategy, as far as they are declared."""
    declared: Any = resource.write_disposition
    if isinstance(declared, dict):
        return str(declared.get("disposition")), declared.get("strategy")
    hints: Any = resource._hints or {}
    return str(declared), hints.get("x-merge-strategy")


def unbound(resource: DltResource) -> Iterator[Finding]:
    pipe: Any = resource._pipe
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


def no_cursor(resource: DltResource) -> Iterator[Finding]:
    if cursor_of(resource) is None:
        yield Finding(
            rule="no-cursor",
            resource=resource.name,
            message="it has no incremental cursor, so every chunk would load all of its rows",
            remedy="declare one with its type, e.g. dlt.sources.incremental[datetime]('updated_at'), "
            "or leave the resource out",
        )


def not_schedulable(resource: DltResource) -> Iterator[Finding]:
    from dlt.extract.incremental import Incremental

    # Older versions of dlt, whose default is False, let the bounds of an attempt come before it.
    obeyed = Incremental.allow_external_schedulers is None
    if obeyed and getattr(cursor_of(resource), "allow_external_schedulers", None) is False:
        yield Finding(
            rule="not-schedulable",
            resource=resource.name,
            message="its incremental has allow_external_schedulers=False, so every chunk would load all rows",
            remedy="remove that argument or set it to True",
        )


def replaces(resource: DltResource) -> Iterator[Finding]:
    disposition, strategy = disposition_of(resource)
    if disposition == "replace":
        yield Finding(
            rule="replace",
            resource=resource.name,
            message="its write disposition is 'replace', so each chunk would delete the ones before it",
            remedy="use 'append', or 'merge' with a primary or merge key",
        )
    if disposition == "merge" and strategy == "scd2":
        yield Finding(
            rule="scd2",
            resource=resource.name,
            message="its merge strategy is 'scd2', so each chunk would retire the rows of the others",
            remedy="use merge strategy 'delete-insert' or 'upsert' for the backfill",
        )


def keyless_merge(resource: DltResource) -> Iterator[Finding]:
    disposition, strategy = disposition_of(resource)
    if disposition != "merge" or strategy == "scd2":
        return
    hints = resource._hints or {}
    columns = hints.get("columns") or {}
    keyed = any(hints.get(key) for key in ("primary_key", "merge_key")) or (
        isinstance(columns, dict)
        and any(column.get(key) for column in columns.values() for key in ("primary_key", "merge_key"))
    )
    if not keyed:
        yield Finding(
            rule="keyless-merge",
            resource=resource.name,
            message=f"it merges into table {resource.table_name!s} without a key, so a retry doubles rows",
            remedy="declare primary_key or merge_key, or use 'append'",
        )


def _declared(resource: DltResource) -> Any | None:
    """The incremental as far as it can be looked at: not one that dlt's configuration will give."""
    from dlt.extract.incremental import Incremental

    cursor = cursor_of(resource)
    return cursor if isinstance(cursor, Incremental) else None


def cursor_type(resource: DltResource) -> Iterator[Finding]:
    cursor = _declared(resource)
    if cursor is None:
        return
    kind: Any = cursor.get_incremental_value_type()
    if kind is Any or kind is str:
        yield Finding(
            rule="cursor-type",
            resource=resource.name,
            message=f"its cursor {cursor.cursor_path!r} is {'untyped' if kind is Any else 'a text'}, "
            "which dlt cannot bound by the times of a chunk",
            remedy="yield datetimes and say so, e.g. dlt.sources.incremental[datetime]('updated_at')",
        )


def cursor_range(resource: DltResource) -> Iterator[Finding]:
    cursor = _declared(resource)
    if cursor is None:
        return
    if cursor.range_start != "closed" or cursor.range_end != "open":
        yield Finding(
            rule="cursor-range",
            resource=resource.name,
            message=f"its incremental has range_start={cursor.range_start!r} and "
            f"range_end={cursor.range_end!r}, so a row on the bound of two chunks is loaded twice or never",
            remedy="leave both at their defaults, 'closed' and 'open'",
        )
    if cursor.last_value_func is not max:
        yield Finding(
            rule="last-value-func",
            resource=resource.name,
            message="its incremental has a last_value_func other than max, under which a chunk loads nothing",
            remedy="leave last_value_func at its default, max",
        )
    if cursor.on_cursor_value_missing == "include":
        yield Finding(
            rule="missing-cursor-values",
            resource=resource.name,
            message="its incremental includes rows without a cursor value, which every chunk would load",
            remedy="set on_cursor_value_missing to 'exclude' or 'raise'",
        )


RULES: tuple[Callable[[DltResource], Iterator[Finding]], ...] = (
    unbound,
    no_cursor,
    cursor_type,
    cursor_range,
    not_schedulable,
    replaces,
    keyless_merge,
)


def starts_late(resource: DltResource, first_chunk: Interval) -> Iterator[Finding]:
    initial = getattr(_declared(resource), "initial_value", None)
    if isinstance(initial, date) and not isinstance(initial, datetime):
        initial = datetime(initial.year, initial.month, initial.day, tzinfo=UTC)
    if not isinstance(initial, datetime):
        return
    initial = initial if initial.tzinfo else initial.replace(tzinfo=UTC)
    if initial >= first_chunk.instants[1]:
        yield Finding(
            rule="initial-value",
            resource=resource.name,
            message=f"its initial_value {initial.isoformat()} lies behind the first chunk ({first_chunk}), "
            "of which dlt would load nothing",
            remedy="set initial_value to the start of the history, or start the window later",
        )


def preflight(source: DltSource, first_chunk: Interval | None = None) -> None:
    """Look at every selected resource.

    Args:
        source: A fresh source.
        first_chunk: The earliest chunk; None leaves out the rules about the window.

    Raises:
        PreflightError: With all findings.
    """
    findings: list[Finding] = []
    for resource in source.selected_resources.values():
        for rule in RULES:
            findings += rule(resource)
        if first_chunk is not None:
            findings += starts_late(resource, first_chunk)
    if findings:
        # Transformers of one parent each find what is wrong with it.
        raise PreflightError(list(dict.fromkeys(findings)))

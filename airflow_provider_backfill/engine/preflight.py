"""Everything that is refused after a look at the source: one rule a function, all findings at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.exceptions import Finding, PreflightError

if TYPE_CHECKING:
    from dlt.extract.resource import DltResource
    from dlt.extract.source import DltSource


def cursor_of(resource: DltResource) -> Any | None:
    """The incremental that bounds a resource: its own, or for a transformer the one of the nearest parent."""
    from dlt.extract.incremental import Incremental, IncrementalResourceWrapper

    pipe: Any = resource._pipe
    while pipe is not None:
        found = pipe.get_by_type(IncrementalResourceWrapper, Incremental)
        if found is not None:
            return found
        pipe = pipe.parent
    return None


def disposition_of(resource: DltResource) -> tuple[str, str | None]:
    """The write disposition and the merge strategy, as far as they are declared."""
    declared: Any = resource.write_disposition
    if isinstance(declared, dict):
        return str(declared.get("disposition")), declared.get("strategy")
    hints: Any = resource._hints or {}
    return str(declared), hints.get("x-merge-strategy")


def no_cursor(resource: DltResource) -> Iterator[Finding]:
    if cursor_of(resource) is None:
        yield Finding(
            rule="no-cursor",
            resource=resource.name,
            message="it has no incremental cursor, so every chunk would load all of its rows",
            remedy="declare one, e.g. dlt.sources.incremental('updated_at'), or leave the resource out",
        )


def not_schedulable(resource: DltResource) -> Iterator[Finding]:
    cursor = cursor_of(resource)
    inner = getattr(cursor, "incremental", None) or cursor
    if getattr(inner, "allow_external_schedulers", None) is False:
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


RULES: tuple[Callable[[DltResource], Iterator[Finding]], ...] = (
    no_cursor,
    not_schedulable,
    replaces,
    keyless_merge,
)


def preflight(source: DltSource) -> None:
    """Look at every selected resource.

    Raises:
        PreflightError: With all findings.
    """
    findings = [
        finding
        for resource in source.selected_resources.values()
        for rule in RULES
        for finding in rule(resource)
    ]
    if findings:
        raise PreflightError(findings)

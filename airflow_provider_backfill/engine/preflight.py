"""Everything that is refused after a look at the source: one rule a function, all findings at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

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
            remedy="declare one, e.g. dlt.sources.incremental('updated_at'), or leave the resource out",
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


RULES: tuple[Callable[[DltResource], Iterator[Finding]], ...] = (
    unbound,
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
        # Transformers of one parent each find what is wrong with it.
        raise PreflightError(list(dict.fromkeys(findings)))

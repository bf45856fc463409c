"""Resources that can be read only once, and would have nothing for the second chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.exceptions import Finding

if TYPE_CHECKING:
    from dlt.extract.source import DltSource

    from airflow_provider_backfill.engine.source import SourceSpec


def read_once(spec: SourceSpec, source: DltSource) -> Iterator[Finding]:
    """Find iterators that a source made afresh still shares with the one before.

    dlt refuses to read a generator twice; of any other iterator it finds the end, and loads nothing.

    Args:
        spec: What the source was made from.
        source: A fresh source that it made.
    """
    iterators = dict(_iterators(source))
    # Each chunk would have other arguments, and so a source of its own.
    if not iterators or spec.bounded_by == "kwargs":
        return
    again = dict(_iterators(spec.load()))
    for name, iterator in iterators.items():
        if again.get(name) is iterator:
            yield Finding(
                rule="read-once",
                resource=name,
                message=f"it is a {type(iterator).__name__} that is made once, so only the first chunk of a "
                "process would have rows",
                remedy="make it in a function, e.g. a @dlt.resource that opens what it reads",
            )


def _iterators(source: DltSource) -> Iterator[tuple[str, Any]]:
    for resource in source.selected_resources.values():
        pipe: Any = resource._pipe
        while pipe.parent is not None:
            pipe = pipe.parent
        if hasattr(pipe.gen, "__next__"):
            yield str(resource.name), pipe.gen

"""Dropping what a source yields outside a chunk that it was only asked for, and counting it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlt.extract.resource import DltResource
    from dlt.extract.source import DltSource


class Dropped:
    """How many rows of one source object were dropped, by resource."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def add(self, resource: str, rows: int) -> None:
        if rows:
            self.rows[resource] = self.rows.get(resource, 0) + rows

    @property
    def total(self) -> int:
        return sum(self.rows.values())


def drop_outside(source: DltSource, column: str) -> Dropped:
    """Give every selected resource that nothing bounds a cursor that lets the chunk's rows pass.

    Args:
        source: A fresh source.
        column: The cursor's path in each row.

    Returns:
        What will be counted, as the source is read.
    """
    from airflow_provider_backfill.engine.preflight.cursors import cursor_of

    dropped = Dropped()
    for resource in source.selected_resources.values():
        if cursor_of(resource) is None:
            _bound(resource, column, dropped)
    return dropped


def _bound(resource: DltResource, column: str, dropped: Dropped) -> None:
    from dlt.common.data_writers.writers import count_rows_in_items
    from dlt.extract.incremental import Incremental, TCursorValue

    name = resource.name

    class Counted(Incremental[TCursorValue]):
        def __call__(self, rows: Any, meta: Any = None) -> Any:
            if rows is None:
                return None
            before = count_rows_in_items(rows)
            left = super().__call__(rows, meta)
            dropped.add(name, before - (0 if left is None else count_rows_in_items(left)))
            return left

    resource.add_step(Counted[datetime](column))

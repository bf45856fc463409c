"""What an attempt has loaded, table by table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlt.common.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """A table that rows were published to.

    Args:
        name: Its name in the dataset.
        rows: How many there were.
        columns: Name and dlt's type of each of its columns, as the load has them.
    """

    name: str
    rows: int
    columns: tuple[tuple[str, str], ...]


def loaded_tables(schema: Schema, rows: Mapping[str, int]) -> tuple[LoadedTable, ...]:
    """The tables that have rows, by name; nested ones are among them."""
    return tuple(
        LoadedTable(
            name=name,
            rows=count,
            columns=tuple(
                (column, str(properties["data_type"]))
                for column, properties in schema.get_table_columns(name).items()
            ),
        )
        for name, count in sorted(rows.items())
        if count
    )


def together(tables: Iterable[LoadedTable]) -> tuple[LoadedTable, ...]:
    """One of each table, with the rows of all of that name and the columns of the last."""
    found: dict[str, LoadedTable] = {}
    for table in tables:
        before = found.get(table.name)
        found[table.name] = replace(table, rows=table.rows + (before.rows if before else 0))
    return tuple(found.values())

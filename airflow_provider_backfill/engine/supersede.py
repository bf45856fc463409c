"""Deleting the version of a chunk that another one replaces, in the transaction that publishes.

Rows are told by the load that they came with. A table that does not say it, such as dlt makes of Arrow
tables, has its rows told by the chunk's interval, in the column of its resource's cursor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.engine.binding import cursor_column
from airflow_provider_backfill.engine.cursors import CursorFormat
from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.nested import families
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.exceptions import RestateError

if TYPE_CHECKING:
    from dlt.common.schema import Schema
    from dlt.common.schema.typing import TTableSchema
    from dlt.destinations.job_client_impl import SqlJobClientWithStagingDataset
    from dlt.extract.source import DltSource

_NUMBERS = frozenset({"bigint", "decimal", "wei", "double"})
#: dlt's types of the columns that values of each format can be compared with.
_TYPES: Mapping[str, frozenset[str]] = {
    "datetime": frozenset({"timestamp"}),
    "naive": frozenset({"timestamp"}),
    "date": frozenset({"date"}),
    "epoch": _NUMBERS,
    "id": _NUMBERS,
    "text": frozenset({"text"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorColumn:
    """The column that tells which chunk a row of a table belongs to.

    Args:
        name: As the database has it.
        format: How its values spell times; None: as datetimes, or as the window's whole numbers.
        naive: It keeps times without a zone, which are UTC unless the format names another; default False.
    """

    name: str
    format: CursorFormat | None
    naive: bool = False

    def span(self, interval: Interval, timezone: str) -> Span:
        """The rows of a chunk; ``timezone`` is the canonical zone of the window."""
        start, end = (self._value(bound, timezone) for bound in (interval.start, interval.end))
        return Span(column=self.name, start=start, end=end)

    def _value(self, bound: datetime | int, timezone: str) -> Any:
        value = self.format.bound(bound, timezone) if self.format else bound
        if not isinstance(value, datetime):
            return value
        if self.naive:
            return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        # dlt stores a time without a zone so, where the column has one.
        return value if value.tzinfo else value.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Rows of a table, ``start <= column < end``."""

    column: str
    start: Any
    end: Any


def cursor_columns(
    stored: Schema | None, source: DltSource, spec: SourceSpec, *, whole: bool
) -> dict[str, CursorColumn]:
    """What tells the rows of a chunk in each table of a source that does not say their load.

    Args:
        stored: The stored schema of the source; None: nothing has been loaded.
        source: A fresh source; only tables of the resources that it selects are looked at.
        spec: How it is bounded.
        whole: Whether the window is of whole numbers.

    Raises:
        RestateError: Nothing tells the rows of one.
    """
    from dlt.common.schema.utils import is_nested_table

    found: dict[str, CursorColumn] = {}
    if stored is None:
        return found
    load_id = stored.naming.normalize_identifier("_dlt_load_id")
    for table in stored.data_tables(seen_data_only=True):
        resource = source.selected_resources.get(str(table.get("resource")))
        if resource is None or is_nested_table(table) or load_id in table["columns"]:
            continue
        known = cursor_column(resource, spec.cursor_format, spec.cursor_column, whole=whole)
        if known is None:
            raise _unknown(table, load_id, "no cursor of its resource tells which chunk it belongs to")
        name, form = stored.naming.normalize_path(known[0]), known[1]
        column: Mapping[str, Any] = table["columns"].get(name, {})
        kind = form.kind if form else "id" if whole else "datetime"
        if column.get("data_type") not in _TYPES[kind]:
            what = column.get("data_type") or "missing"
            raise _unknown(table, load_id, f"its cursor column {name!r} is {what}, which no {kind} bounds")
        others = [other for other, hints in table["columns"].items() if hints.get("incremental")]
        if set(others) - {name}:
            changed = ", ".join(sorted(set(others) - {name}))
            raise _unknown(table, load_id, f"rows were loaded by another cursor column ({changed}) before")
        found[str(table["name"])] = CursorColumn(
            name=name, format=form, naive=column.get("timezone") is False
        )
    return found


def _unknown(table: TTableSchema, load_id: str, reason: str) -> RestateError:
    return RestateError(
        f"table {table['name']}",
        f"it has no column {load_id} that says which load a row came with, and {reason}",
    )


def supersede(
    client: SqlJobClientWithStagingDataset, load_ids: Sequence[str], spans: Mapping[str, Span]
) -> None:
    """Delete the rows of earlier loads, nested rows before their parents.

    Args:
        client: dlt's client, in the transaction.
        load_ids: The loads.
        spans: The rows of tables that do not say their load.
    """
    for rows, values in rows_of_version(client, load_ids, spans):
        for place in reversed(list(rows.values())):
            client.sql_client.execute_sql(f"DELETE FROM {place}", *values)


def rows_of_version(
    client: SqlJobClientWithStagingDataset, load_ids: Sequence[str], spans: Mapping[str, Span]
) -> Iterator[tuple[Mapping[str, str], Sequence[Any]]]:
    """Where the rows of a chunk's version stand, one pair a chain of tables.

    Args:
        client: dlt's client, with the dataset and the schema of the tables.
        load_ids: The loads that brought the version.
        spans: The rows of tables that do not say their load.

    Returns:
        By the table's name, parents first, what stands behind ``FROM``, where nested rows are told by their
        parents; and the parameters of a statement that has it.
    """
    from dlt.common.schema.utils import get_nested_tables, has_table_seen_data, is_nested_table

    sql = client.sql_client
    load_id = client.schema.naming.normalize_identifier("_dlt_load_id")
    for root in client.schema.data_tables(seen_data_only=True):
        span = spans.get(str(root["name"]))
        if is_nested_table(root) or (span is None and load_id not in root["columns"]):
            continue
        values: tuple[Any, ...]
        if span is None:
            marks = ", ".join("%s" for _ in load_ids)
            ours, values = f"{sql.escape_column_name(load_id)} IN ({marks})", tuple(load_ids)
        else:
            column = sql.escape_column_name(span.column)
            ours, values = f"{column} >= %s AND {column} < %s", (span.start, span.end)
        # A table that is declared and never had a row is not there.
        chain = filter(has_table_seen_data, get_nested_tables(client.schema.tables, str(root["name"])))
        yield families(client, [str(table["name"]) for table in chain], ours), values

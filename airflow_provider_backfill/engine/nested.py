"""Rows of a table together with what is nested in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlt.destinations.job_client_impl import SqlJobClientWithStagingDataset


def column(client: SqlJobClientWithStagingDataset, name: str) -> str:
    """One of dlt's own columns as the destination calls it, quoted."""
    return client.sql_client.escape_column_name(client.schema.naming.normalize_identifier(name))


def families(
    client: SqlJobClientWithStagingDataset, chain: Sequence[str], condition: str
) -> Mapping[str, str]:
    """Where the rows of a root table are that meet a condition, and all that is nested in them.

    Args:
        client: dlt's client; its staging dataset is looked into if it is active.
        chain: A root table and its nested ones, parents first.
        condition: In SQL, about a row of the root.

    Returns:
        For each table, ``<qualified name> WHERE <condition>``.
    """
    from dlt.common.schema.utils import is_nested_table

    row_id, parent_id = column(client, "_dlt_id"), column(client, "_dlt_parent_id")
    found: dict[str, str] = {}
    for name in chain:
        table = client.schema.tables[name]
        if is_nested_table(table):
            parents = f"SELECT {row_id} FROM {found[str(table['parent'])]}"
            condition = f"{parent_id} IN ({parents})"
        found[name] = f"{client.sql_client.make_qualified_table_name(name)} WHERE {condition}"
    return found


def delete_families(
    client: SqlJobClientWithStagingDataset, chain: Sequence[str], condition: str, *values: object
) -> None:
    """Delete such rows, the deepest first; ``values`` are those of the condition's ``%s``."""
    for rows in reversed(list(families(client, chain, condition).values())):
        client.sql_client.execute_sql(f"DELETE FROM {rows}", *values)

"""What has to hold before completed chunks are loaded again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.schemas import read_stored_schema
from airflow_provider_backfill.engine.stage import open_client, stage_prefix
from airflow_provider_backfill.exceptions import RestateError

if TYPE_CHECKING:
    from dlt.extract.source import DltSource


def check_restatable(target: Target, source: DltSource, wait_seconds: float) -> None:
    """Refuse to replace rows of a source that cannot be told from others. Only reads.

    Args:
        target: Where its tables stand.
        source: The source.
        wait_seconds: How long to wait for a database file in use, seconds.

    Raises:
        RestateError: A table of a selected resource does not say which load a row came with.
    """
    from dlt.common.schema.utils import is_nested_table

    # Nothing is staged under this name.
    stage = f"{stage_prefix(target, source.name)}none"
    with open_client(target, stage, source.schema, wait_seconds) as (client, _):
        stored = read_stored_schema(client, source.schema.name)
    if stored is None:
        return
    load_id = stored.naming.normalize_identifier("_dlt_load_id")
    for table in stored.data_tables(seen_data_only=True):
        if is_nested_table(table) or table.get("resource") not in source.selected_resources:
            continue
        if load_id not in table["columns"]:
            raise RestateError(
                f"table {table['name']}", f"it has no column {load_id} that says which load a row came with"
            )

"""What has to hold before completed chunks are loaded again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.schemas import read_stored_schema
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.stage import open_client, stage_prefix
from airflow_provider_backfill.engine.supersede import cursor_columns

if TYPE_CHECKING:
    from dlt.extract.source import DltSource


def check_restatable(
    target: Target, source: DltSource, spec: SourceSpec, wait_seconds: float, *, whole: bool
) -> None:
    """Refuse to replace rows of a source that cannot be told from others. Only reads.

    Args:
        target: Where its tables stand.
        source: The source.
        spec: How it is bounded.
        wait_seconds: How long to wait for a database file in use, seconds.
        whole: Whether the window is of whole numbers.

    Raises:
        RestateError: A table of a selected resource says neither which load a row came with, nor which chunk
            it belongs to.
    """
    # Nothing is staged under this name.
    stage = f"{stage_prefix(target, source.name)}none"
    with open_client(target, stage, source.schema, wait_seconds) as (client, _):
        stored = read_stored_schema(client, source.schema.name)
    cursor_columns(stored, source, spec, whole=whole)

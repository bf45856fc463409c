"""Page views, backfilled day by day, and a second DAG that is told which window has arrived.

Needs the connection ``warehouse`` (type ``duckdb`` or ``postgres``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Asset, task

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

# [START assets]
PAGE_VIEWS = Asset(uri="warehouse://web_assets/page_views")

with DAG(dag_id="example_assets", schedule=None):
    ChunkedBackfillOperator.expand_window(
        task_id="web_events",
        source="sources.web_events:page_views",
        conn_id="warehouse",
        dataset_name="web_assets",
        start="2026-01-01",
        end="2026-01-06",
        chunk="1d",
        outlets=[PAGE_VIEWS],
    )

with DAG(
    dag_id="example_assets_consumer",
    schedule=[PAGE_VIEWS],
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001
):

    @task
    def windows_to_rebuild(**context: Any) -> list[dict[str, Any]]:
        # Airflow 2.11 calls an asset a dataset. One DAG run may be for several events.
        triggering = context.get("triggering_asset_events") or context.get("triggering_dataset_events") or {}
        return [event.extra for events in triggering.values() for event in events]

    windows_to_rebuild()
# [END assets]

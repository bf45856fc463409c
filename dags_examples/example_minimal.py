"""The shortest DAG that backfills a window: five days of page views, day by day.

Needs the connection ``warehouse`` (type ``duckdb`` or ``postgres``).
"""

from __future__ import annotations

# [START minimal]
from airflow.providers.common.compat.sdk import DAG

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

with DAG(dag_id="example_minimal", schedule=None, default_args={"retries": 3}):
    ChunkedBackfillOperator.expand_window(
        task_id="web_events",
        source="sources.web_events:page_views",
        conn_id="warehouse",
        dataset_name="web_raw",
        start="2026-01-01",
        end="2026-01-06",
        chunk="1d",
    )
# [END minimal]

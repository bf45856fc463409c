"""Page views, backfilled day by day onto whichever connection the DAG run names.

Needs the connection ``warehouse`` (type ``duckdb`` or ``postgres``), or another one named when the DAG is
triggered.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

# [START web_events]
with DAG(
    dag_id="example_web_events",
    schedule=None,
    params={
        "start": "2026-01-01T00:00:00Z",
        "end": "2026-01-06T00:00:00Z",
        "chunk": "1d",
        "conn_id": "warehouse",
    },
    tags=["example", "backfill"],
):
    ChunkedBackfillOperator.expand_window(
        task_id="web_events",
        source="sources.web_events:page_views",
        conn_id="{{ params.conn_id }}",
        dataset_name="web_raw",
        start="{{ params.start }}",
        end="{{ params.end }}",
        chunk="{{ params.chunk }}",
        retries=1,
        retry_delay=timedelta(seconds=5),
    )
# [END web_events]

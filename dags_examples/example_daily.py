"""Page views: each DAG run loads its own day, whether the schedule or a backfill of Airflow's began it.

Needs the connection ``warehouse`` (type ``duckdb`` or ``postgres``).
"""

from __future__ import annotations

# [START daily]
import pendulum
from airflow.providers.common.compat.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

with DAG(
    dag_id="example_daily",
    # On Airflow 3 the data intervals of schedule="@daily" have no length.
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=pendulum.datetime(2026, 1, 1),
    # The example's data end here.
    end_date=pendulum.datetime(2026, 1, 6),
    catchup=False,
    # Of the schedule's runs, and on Airflow 2.11 of a backfill's.
    max_active_runs=2,
    tags=["example", "backfill"],
):
    # start and end are left out: they are those of the DAG run's data interval.
    ChunkedBackfillOperator(
        task_id="page_views",
        source="sources.web_events:page_views",
        conn_id="warehouse",
        dataset_name="web_daily",
    )
# [END daily]

"""What the tests of Airflow's backfills need beside the examples: DAGs whose schedule ends in the past."""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.providers.common.compat.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

SOURCE = "sources.web_events:page_views"

with DAG(
    "backfill_taken_over",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=pendulum.datetime(2026, 1, 1),
    end_date=pendulum.datetime(2026, 1, 4),
    catchup=True,
    is_paused_upon_creation=True,
    max_active_runs=1,
):
    ChunkedBackfillOperator(
        task_id="page_views", source=SOURCE, conn_id="warehouse", dataset_name="web_taken_over"
    )

with DAG(
    "backfill_cron_string",
    schedule="@monthly",
    start_date=pendulum.datetime(2026, 1, 1),
    end_date=pendulum.datetime(2026, 1, 1),
    catchup=False,
):
    ChunkedBackfillOperator(
        task_id="page_views",
        source=SOURCE,
        conn_id="warehouse",
        dataset_name="web_cron_string",
        retries=2,
        retry_delay=timedelta(seconds=1),
    )

"""Backfills of two resources among other tasks: one group each, in a loop, in a group of the author's.

Needs the connection ``warehouse`` (type ``duckdb`` or ``postgres``).
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.providers.common.compat.sdk import DAG, TaskGroup, task

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator


# [START task_groups]
def tell_owner(context: Any) -> None:
    """Called for the chunk that has failed for good, and for the report of its window."""
    ti = context["ti"]
    logging.getLogger(__name__).error("tell the owner: %s [%s] failed", ti.task_id, ti.map_index)


with DAG(
    dag_id="example_task_groups",
    schedule=None,
    default_args={"retries": 2, "on_failure_callback": tell_owner},
):

    @task
    def announce() -> None: ...

    @task
    def refresh_dashboards() -> None: ...

    with TaskGroup("site") as site:
        for resource, chunk in {"page_views": "1d", "searches": "3d"}.items():
            ChunkedBackfillOperator.expand_window(
                task_id=resource,
                source="sources.web_events:site",
                resources=[resource],
                conn_id="warehouse",
                dataset_name="web_groups",
                start="2026-01-01",
                end="2026-01-07",
                chunk=chunk,
            )

    # The dashboards are refreshed once both windows are covered.
    announce() >> site >> refresh_dashboards()
# [END task_groups]

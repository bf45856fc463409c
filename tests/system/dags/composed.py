"""Backfills among other tasks, as a DAG's author puts them together."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import DAG, TaskGroup, task

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.operators.plan import BackfillPlanOperator
from airflow_provider_backfill.operators.report import BackfillReportOperator

SOURCE: dict[str, Any] = {"source": "steering_source:events", "conn_id": "postgres"}
WINDOW: dict[str, Any] = {"start": "2026-01-01", "end": "2026-01-04", "chunk": "1d"}


def tell(context: Any) -> None:
    """Write down which task has failed, and of which chunk."""
    ti = context["ti"]
    with (Path(context["params"]["folder"]) / "failures").open("a") as failures:
        failures.write(f"{ti.task_id} {ti.map_index}\n")


with DAG(
    "composed",
    schedule=None,
    params={"folder": ""},
    default_args={"pool": "composed", "on_failure_callback": tell},
):

    @task(pool="default_pool")
    def first() -> None:
        """Ends before anything is planned."""

    @task(pool="default_pool")
    def last() -> None:
        """Only for windows that are covered."""

    @task(pool="default_pool", trigger_rule="all_done")
    def tidy() -> None:
        """Whatever came of them."""

    with TaskGroup("regions") as regions:
        for region in ("eu", "us"):
            ChunkedBackfillOperator.expand_window(
                task_id=region,
                source_name=f"events_{region}",
                source_kwargs={"folder": f"{{{{ params.folder }}}}/{region}"},
                dataset_name=f"composed_{region}",
                max_active_chunks=3,
                **SOURCE,
                **WINDOW,
            )
    _ = first() >> regions >> [last(), tidy()]

# [START by_hand]
with DAG("composed_by_hand", schedule=None, params={"folder": ""}):
    where = {"conn_id": "postgres", "dataset_name": "composed_planned"}
    source: dict[str, Any] = {
        "source": "steering_source:events",
        "source_kwargs": {"folder": "{{ params.folder }}/planned"},
        **where,
    }
    plan = BackfillPlanOperator(task_id="plan", start="2026-01-01", end="2026-01-04", chunk="1d", **source)
    chunks = ChunkedBackfillOperator.partial(
        task_id="chunk", map_index_template="{{ task.interval_label }}", **source
    ).expand_kwargs(plan.output)
    report = BackfillReportOperator(
        task_id="report", plan_task_id=plan.task_id, trigger_rule="all_done", **where
    )
    _ = chunks >> report
    # [END by_hand]

    # [START windows]
    ChunkedBackfillOperator.partial(
        task_id="windows",
        source="steering_source:events",
        source_kwargs={"folder": "{{ params.folder }}/windows"},
        conn_id="postgres",
        dataset_name="composed_windows",
        map_index_template="{{ task.interval_label }}",
    ).expand_kwargs(
        [{"start": "2026-01-05", "end": "2026-01-07"}, {"start": "2026-01-01", "end": "2026-01-02"}]
    )
    # [END windows]

with DAG("composed_timeout", schedule=None, params={"folder": ""}):
    ChunkedBackfillOperator.expand_window(
        task_id="events",
        source_kwargs={"folder": "{{ params.folder }}"},
        dataset_name="composed_timeout",
        execution_timeout=timedelta(seconds=20),
        retries=1,
        retry_delay=timedelta(seconds=3),
        **SOURCE,
        **WINDOW,
    )

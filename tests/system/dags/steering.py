"""Windows of a few days that the system tests steer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

# One DAG a test, so that each has a dataset of its own.
CASES: dict[str, dict[str, Any]] = {
    "steered_clear": {"max_active_chunks": 3},
    "steered_mark": {},
    "steered_stop": {},
    "steered_retry": {"retries": 1, "retry_delay": timedelta(seconds=3)},
    "steered_twice": {"max_active_chunks": 3},
    "steered_backward": {"order": "backward", "chunks_per_task": 2},
    "steered_page": {"end": "2026-01-06"},
}

for dag_id, arguments in CASES.items():
    with DAG(dag_id, schedule=None, params={"folder": ""}, max_active_runs=4):
        ChunkedBackfillOperator.expand_window(
            task_id="events",
            source="steering_source:events",
            source_kwargs={"folder": "{{ params.folder }}"},
            conn_id="postgres",
            dataset_name=dag_id,
            **{"start": "2026-01-01", "end": "2026-01-04", "chunk": "1d", **arguments},
        )

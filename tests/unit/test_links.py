"""Where the link on a task leads to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from airflow.serialization import serialized_objects

from airflow_provider_backfill.get_provider_info import get_provider_info
from airflow_provider_backfill.links.backfill import BackfillLink
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import AIRFLOW_V_3_0_PLUS, DAG, TaskGroup

COMMON: dict[str, Any] = {"source": "sources.events:events", "conn_id": "warehouse", "dataset_name": "raw"}
RUN = "manual__2026-01-01T00:00:00+00:00"
QUOTED = "manual__2026-01-01T00%3A00%3A00%2B00%3A00"


@dataclass(frozen=True, kw_only=True)
class Key:
    """As much of a task instance's key as a link needs."""

    task_id: str
    map_index: int = -1
    dag_id: str = "a_dag"
    run_id: str = RUN


@pytest.fixture
def dag() -> Any:
    with DAG("a_dag", schedule=None) as dag:
        ChunkedBackfillOperator.expand_window(task_id="events", chunk="1d", **COMMON)
        by_hand = ChunkedBackfillOperator.partial(task_id="by_hand", **COMMON)
        by_hand.expand_kwargs([{"start": "2026-01-01", "end": "2026-01-02"}])
        with TaskGroup("etl"):
            ChunkedBackfillOperator.expand_window(task_id="views", chunk="1d", **COMMON)
            ChunkedBackfillOperator(task_id="alone", **COMMON)
    return dag


def link(dag: Any, task_id: str, map_index: int = -1) -> str:
    task = dag.get_task(task_id)
    [made] = [made for made in task.operator_extra_links if made.name == "Backfill"]
    return made.get_link(task, ti_key=Key(task_id=task_id, map_index=map_index))


def page(modern: str, old: str) -> str:
    if AIRFLOW_V_3_0_PLUS:
        return f"/dags/a_dag/runs/{QUOTED}/tasks/{modern}"
    return f"/dags/a_dag/grid?dag_run_id={QUOTED}&task_id={old}"


@pytest.mark.parametrize("group", ["events", "etl.views"])
def test_each_task_of_a_window_leads_to_its_group(dag: Any, group: str) -> None:
    expected = page(f"group/{group}", group)
    assert link(dag, f"{group}.plan") == expected
    assert link(dag, f"{group}.chunk", 3) == expected
    assert link(dag, f"{group}.chunk") == expected
    assert link(dag, f"{group}.report") == expected


def test_one_chunk_by_itself_leads_to_its_own_page(dag: Any) -> None:
    assert link(dag, "etl.alone") == page("etl.alone", "etl.alone")


def test_chunks_that_were_mapped_by_hand_lead_to_all_of_them(dag: Any) -> None:
    assert link(dag, "by_hand", 2) == page("by_hand/mapped", "by_hand")


def test_a_path_that_airflow_is_served_under_is_kept(dag: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    section = "API" if AIRFLOW_V_3_0_PLUS else "WEBSERVER"
    monkeypatch.setenv(f"AIRFLOW__{section}__BASE_URL", "https://example.org/air/flow/")
    assert link(dag, "events.plan") == "/air/flow" + page("group/events", "events")


def test_airflow_restores_it_from_its_database(dag: Any) -> None:
    name = "DagSerialization" if AIRFLOW_V_3_0_PLUS else "SerializedDAG"
    serialized = getattr(serialized_objects, name)
    restored = serialized.from_dict(serialized.to_dict(dag))
    for task_id, map_index in (("etl.views.chunk", 0), ("etl.alone", -1), ("events.report", -1)):
        task = restored.get_task(task_id)
        made = task.operator_extra_link_dict["Backfill"]
        if AIRFLOW_V_3_0_PLUS:
            # It reads there what the worker has pushed.
            assert made.xcom_key == BackfillLink().xcom_key
        else:
            key = Key(task_id=task_id, map_index=map_index)
            assert made.get_link(task.unmap(None), ti_key=key) == link(dag, task_id, map_index)


def test_the_provider_declares_it() -> None:
    path = f"{BackfillLink.__module__}.{BackfillLink.__qualname__}"
    assert get_provider_info()["extra-links"] == [path]

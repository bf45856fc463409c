"""``handover`` of the operators: a fourth task, behind a report that found the window covered."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.operators.handover import BackfillHandoverOperator
from airflow_provider_backfill.version_compat import DAG, AirflowFailException
from tests.support.tasks import Tasks, rows_of, run_task

pytestmark = pytest.mark.usefixtures("sources")


def hand_over(tasks: Tasks, pipeline: str | None = "web_forward") -> list[dict[str, Any]]:
    operator = BackfillHandoverOperator(
        task_id="handover", plan_task_id="events.plan", handover=pipeline, **tasks.source
    )
    result: list[dict[str, Any]] = run_task(operator, tasks.ti("handover"))
    return result


def test_the_task_moves_the_bookmark_of_a_covered_window(warehouse: Target) -> None:
    tasks = Tasks()
    mapped = tasks.plan(handover="web_forward")
    with pytest.raises(AirflowFailException, match="the window is not covered"):
        hand_over(tasks)
    for index, part in enumerate(mapped):
        tasks.chunk(part, index)
    end = "2026-01-06T00:00:00+00:00"
    assert hand_over(tasks) == [{"resource": "page_views", "cursor": "at", "before": None, "value": end}]
    [again] = hand_over(tasks)
    assert again["before"] == again["value"] == end
    assert hand_over(tasks, "") == []


def test_what_stands_against_it_is_refused_by_the_plan(warehouse: Target) -> None:
    tasks = Tasks()
    for index, part in enumerate(tasks.plan()):
        tasks.chunk(part, index)
    hand_over(tasks)
    count = len(rows_of(warehouse))
    with pytest.raises(AirflowFailException, match="would move backwards"):
        Tasks().plan(start="2025-12-30", end="2026-01-01", handover="web_forward")
    with pytest.raises(AirflowFailException, match="the window goes into dataset web_look"):
        Tasks(into="web_look").plan(handover="web_forward")
    assert len(rows_of(warehouse)) == count


@pytest.mark.parametrize("handover", [None, "{{ params.handover or '' }}"])
def test_the_group_has_the_task_only_if_it_is_asked_for(handover: str | None) -> None:
    with DAG(dag_id="handing", schedule=None):
        group = ChunkedBackfillOperator.expand_window(
            task_id="views",
            source="page_view_source:page_views",
            conn_id="warehouse",
            dataset_name="web_raw",
            chunk="1d",
            handover=handover,
        )
    tasks: dict[str, Any] = dict(group.children)
    assert ("views.handover" in tasks) is (handover is not None)
    if handover:
        assert tasks["views.handover"].upstream_task_ids == {"views.report"}
        assert tasks["views.handover"].handover == tasks["views.plan"].handover == handover
        assert "handover" in BackfillHandoverOperator.template_fields

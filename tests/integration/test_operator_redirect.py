"""``into`` of the operators: the whole group works in the other dataset, and says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Asset

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import DAG, AirflowFailException
from tests.support.ledgers import sql
from tests.support.tasks import BACKFILL_ID, FakeTaskInstance, Tasks, context_of, rows_of

pytestmark = pytest.mark.usefixtures("sources")


def redirected(into: str) -> Tasks:
    tasks = Tasks(into=into)
    tasks.target = {**tasks.target, "into": into}
    return tasks


def test_plan_chunks_and_report_work_in_the_other_dataset(
    warehouse: Target, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("INFO")
    tasks = redirected("web_look")
    for index, part in enumerate(tasks.plan()):
        tasks.chunk(part, index)
    asset = Asset(uri="warehouse://web_raw/page_views")
    events = context_of(FakeTaskInstance(task_id="any"))["outlet_events"]
    summary = tasks.report([asset], outlet_events=events)
    assert (summary["backfill_id"], summary["completed"]) == (BACKFILL_ID, 5)
    assert events[asset].extra["into"] == "web_look"
    said = caplog.text + capsys.readouterr().out
    assert "redirected into dataset web_look; web_raw is left as it is" in said
    assert sql(warehouse, "SELECT count(*) FROM web_look.page_views") == [(5,)]
    assert len(rows_of(replace(warehouse, dataset_name="web_look"))) == 5
    assert rows_of(warehouse) == []


def test_the_dataset_itself_is_refused(warehouse: Target) -> None:
    with pytest.raises(
        AirflowFailException, match="into 'web_raw' is the dataset that the backfill belongs to"
    ):
        redirected("web_raw").plan()


def test_the_group_passes_it_to_all_its_tasks() -> None:
    with DAG(dag_id="redirected", schedule=None):
        group = ChunkedBackfillOperator.expand_window(
            task_id="views",
            source="page_view_source:page_views",
            conn_id="warehouse",
            dataset_name="web_raw",
            chunk="1d",
            into="{{ params.into }}",
            start="2026-01-01",
            end="2026-01-06",
        )
    tasks: dict[str, Any] = dict(group.children)
    plan, chunk, report = (tasks[f"views.{name}"] for name in ("plan", "chunk", "report"))
    assert plan.into == chunk.partial_kwargs["into"] == report.into == "{{ params.into }}"
    assert "into" in report.template_fields

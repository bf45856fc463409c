"""What callbacks and notifiers are told of a backfill's tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.operators.handover import BackfillHandoverOperator
from airflow_provider_backfill.operators.plan import BackfillPlanOperator
from airflow_provider_backfill.operators.report import BackfillReportOperator
from airflow_provider_backfill.version_compat import AirflowException, AirflowSkipException
from tests.support.pages import CODE, DOCS, section, table
from tests.support.tasks import BACKFILL_ID, WINDOW, Tasks, context_of

WHAT = "web_events into web_raw"

pytestmark = [
    pytest.mark.usefixtures("sources"),
    pytest.mark.parametrize("warehouse", ["duckdb"], indirect=True),
]


class Told:
    """Runs tasks, and keeps what their callbacks would be told."""

    def __init__(self, **source: Any) -> None:
        self.tasks = Tasks(**source)

    def run(self, operator: Any, task: str, *, fails: bool = False, **ti: Any) -> dict[str, Any]:
        context = context_of(self.tasks.ti(task, **ti))
        if fails:
            with pytest.raises((AirflowException, AirflowSkipException)):
                operator.execute(context)
        else:
            operator.execute(context)
        # It may be sent as it is.
        told: dict[str, Any] = json.loads(json.dumps(context["backfill"]))
        return told

    def plan(self, *, fails: bool = False, **arguments: Any) -> dict[str, Any]:
        arguments = {**self.tasks.source, **WINDOW, "chunk": "1d", **arguments}
        return self.run(BackfillPlanOperator(task_id="plan", **arguments), "plan", fails=fails)

    def chunk(self, mapped: dict[str, Any], *, fails: bool = False, **ti: Any) -> dict[str, Any]:
        operator = ChunkedBackfillOperator(task_id="chunk", **self.tasks.source, **mapped)
        return self.run(operator, "chunk", fails=fails, **ti)

    def report(self, *, fails: bool = False) -> dict[str, Any]:
        operator = BackfillReportOperator(task_id="report", plan_task_id="events.plan", **self.tasks.target)
        return self.run(operator, "report", fails=fails)


def documented() -> dict[str, set[str]]:
    """The keys of each task's summary, as the page has them."""
    tasks: dict[str, set[str]] = {"plan": set(), "chunk": set(), "report": set()}
    for keys, of, _ in table(section(DOCS / "howto" / "notifications.md", "## What it has"), "key"):
        for task in tasks if of == "all" else CODE.findall(of):
            tasks[task] |= set(CODE.findall(keys))
    return tasks


def test_each_task_of_a_window_tells_what_it_was_about(warehouse: Target, tmp_path: Path) -> None:
    outage = tmp_path / "outage"
    outage.touch()
    told = Told(source_kwargs={"outage": str(outage)})
    window = {"start": "2026-01-01T00:00:00+00:00", "end": "2026-01-06T00:00:00+00:00"}
    planned = told.plan()
    assert planned == {
        "task": "plan",
        "status": "completed",
        "backfill_id": BACKFILL_ID,
        "source": "web_events",
        "dataset": "web_raw",
        "error": None,
        "total": 5,
        "mapped": 5,
        "interval": "2026-01-01 → 2026-01-06",
        **window,
        "summary": f"{WHAT}, 2026-01-01 → 2026-01-06: plan completed",
    }
    mapped = told.tasks.plan()
    first = told.chunk(mapped[0])
    seconds = first.pop("seconds")
    size = first.pop("bytes")
    assert seconds > 0
    assert size > 0
    assert first == {
        "task": "chunk",
        "status": "completed",
        "backfill_id": BACKFILL_ID,
        "source": "web_events",
        "dataset": "web_raw",
        "error": None,
        "chunk_ids": ["000000"],
        "chunk": "2026-01-01 → 2026-01-02",
        "interval": "2026-01-01 → 2026-01-02",
        "start": "2026-01-01T00:00:00+00:00",
        "end": "2026-01-02T00:00:00+00:00",
        "total": 5,
        "completed": 1,
        "skipped": 0,
        "rows": 1,
        "dropped": 0,
        "rejected": 0,
        "warnings": 0,
        "summary": f"{WHAT}, 2026-01-01 → 2026-01-02: chunk completed, 1 rows",
    }
    assert told.chunk(mapped[0])["status"] == "skipped"
    broken = told.chunk(mapped[2], fails=True)
    reason = "chunk 3 failed: RuntimeError: the API is down; nothing of this attempt was published"
    assert (broken["status"], broken["chunk_ids"], broken["source"]) == ("failed", ["000002"], "web_events")
    assert broken["error"].startswith(reason)
    assert broken["summary"].startswith(f"{WHAT}, 2026-01-03 → 2026-01-04: chunk failed ({reason}")
    late = told.report(fails=True)
    assert (late["status"], late["completed"], late["failed"], late["pending"]) == ("failed", 1, 1, 3)
    assert "chunk 3/5 [2026-01-03T00:00:00+00:00 → 2026-01-04T00:00:00+00:00): failed" in late["error"]
    assert window.items() <= late.items()
    assert late["summary"] == (
        f"{WHAT}, 2026-01-01 → 2026-01-06: 1 completed, 0 skipped, 0 claimed elsewhere, 1 failed, 3 pending"
        " (5 chunks)"
    )
    for part in mapped[1:]:
        told.chunk(part)
    through = told.report()
    assert (through["status"], through["records"], through["error"]) == ("completed", 5, None)
    told_of = {"plan": set(planned), "chunk": {*first, "bytes", "seconds"}, "report": set(through)}
    assert documented() == told_of


def test_one_that_fails_early_tells_what_it_knows(warehouse: Target) -> None:
    told = Told()
    refused = told.plan(fails=True, chunk="1x")
    assert (refused["status"], refused["backfill_id"]) == ("failed", None)
    assert refused["summary"].startswith("page_view_source:page_views into web_raw: plan failed (chunk '1x' ")
    unplanned = told.report(fails=True)
    assert unplanned["summary"] == (
        "a source into web_raw: report failed (nothing was planned; see the log of task events.plan)"
    )
    handover = BackfillHandoverOperator(
        task_id="handover", plan_task_id="events.plan", handover="web", **told.tasks.source
    )
    told.tasks.plan()
    late = told.run(handover, "handover", fails=True)
    assert (late["task"], late["status"], late["backfill_id"]) == ("handover", "failed", BACKFILL_ID)


def test_one_that_is_stopped_from_outside_has_failed(
    warehouse: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Airflow does when a task takes too long, whose timeout is no exception like others."""
    context = context_of(Tasks().ti("plan"))
    operator = BackfillPlanOperator(task_id="plan", **{**Tasks().source, **WINDOW, "chunk": "1d"})

    def plan(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(BackfillPlanOperator, "_plan", plan)
    with pytest.raises(KeyboardInterrupt):
        operator.execute(context)
    told = context["backfill"]
    assert (told["status"], told["error"]) == ("failed", "KeyboardInterrupt")


def test_one_that_is_left_pending_is_skipped(warehouse: Target) -> None:
    told = Told(max_active_chunks=1, max_failed_chunks=1)
    mapped = Tasks().plan()
    left = told.chunk(mapped[1], fails=True, map_index=1, states={0: "failed", 1: "running"})
    assert left["status"] == "skipped"
    assert "max_failed_chunks is 1" in left["error"]

"""What the tasks of a backfill tell Airflow's statistics."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.metrics import Metric
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.operators.metrics import AirflowStats
from airflow_provider_backfill.version_compat import AirflowException, Stats
from tests.support.deferral import deferred, resumed
from tests.support.ledgers import me, opened
from tests.support.metrics import Kept
from tests.support.tasks import BACKFILL_ID, Tasks, run_task

pytestmark = [
    pytest.mark.usefixtures("sources"),
    pytest.mark.parametrize("warehouse", ["duckdb"], indirect=True),
]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Kept:
    kept = Kept()

    def write(self: AirflowStats, metric: Metric) -> None:
        kept.write(metric)

    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    monkeypatch.setattr(AirflowStats, "write", write)
    return kept


def test_a_window_from_its_plan_to_its_report(warehouse: Target, told: Kept) -> None:
    tasks = Tasks(retries=1)
    mapped = tasks.plan()
    assert told.values("progress.ratio") == [0]
    for index, part in enumerate(mapped):
        tasks.chunk(part, index)
    # A retry finds its chunk completed.
    tasks.chunk(mapped[0], 0, try_number=2, max_tries=1)
    assert told.counts() == {"chunks.completed": 5, "chunks.skipped": 1, "rows.loaded": 5}
    tasks.report()
    assert told.values("progress.ratio") == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1, 1, 1])
    assert {metric.tags["backfill_id"] for metric in told.of("progress.ratio")} == {BACKFILL_ID}


def test_statistics_that_are_down_are_one_line_and_the_tasks_go_on(
    warehouse: Target, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def down(*_: Any, **__: Any) -> None:
        raise ConnectionError("statistics are down")

    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    for name in ("incr", "gauge", "timing"):
        monkeypatch.setattr(Stats, name, down, raising=False)
    tasks = Tasks()
    for index, part in enumerate(tasks.plan()):
        tasks.chunk(part, index)
    assert tasks.report()["completed"] == 5
    said = "metrics are not recorded from here on: ConnectionError: statistics are down"
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    # One a task, which has a process of its own: plan, five chunks, report.
    assert errors == [said] * 7


def test_a_wait_that_is_deferred_is_one(warehouse: Target, told: Kept) -> None:
    tasks = Tasks()
    [mapped, *_] = tasks.plan()
    with opened(warehouse) as ledger:
        claim = ledger.claim(ledger.chunk(BACKFILL_ID, "000000"), me("worker-3:4711"), 3_600)
    ti = tasks.ti("chunk", map_index=0)

    def operator() -> ChunkedBackfillOperator:
        return ChunkedBackfillOperator(task_id="chunk", **tasks.source, **mapped)

    wait = deferred(lambda: run_task(operator(), ti))
    wait = deferred(lambda: resumed(operator(), wait, ti))
    assert told.counts() == {"waits": 1}
    assert told.of("wait.duration") == []
    with opened(warehouse) as ledger:
        ledger.complete(claim, 0, [])
    assert resumed(operator(), wait, ti)["status"] == "skipped"
    assert told.counts() == {"waits": 1, "chunks.skipped": 1}
    [duration] = told.values("wait.duration")
    assert 0 < duration < 3_600


def test_a_wait_that_is_over_is_told_too(
    warehouse: Target, told: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CHUNKED_BACKFILL__WAIT_TIMEOUT_SECONDS", "1")
    [mapped, *_] = Tasks().plan()
    with opened(warehouse) as ledger:
        ledger.claim(ledger.chunk(BACKFILL_ID, "000000"), me("worker-3:4711"), 3_600)
    with pytest.raises(AirflowException, match="held by worker-3:4711"):
        Tasks(deferrable=False).chunk(mapped)
    assert told.counts() == {"waits": 1}
    [duration] = told.values("wait.duration")
    assert duration >= 1

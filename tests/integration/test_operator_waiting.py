"""A task whose chunk somebody else holds: deferred, or waiting in its worker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.records import Claim
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.operators.waiting import BLIND_SECONDS, GRACE_SECONDS
from airflow_provider_backfill.version_compat import AirflowException, AirflowFailException
from tests.support.deferral import deferred, restored, resumed, run_to_the_end
from tests.support.ledgers import end_leases, me, opened, sql
from tests.support.tasks import BACKFILL_ID, WINDOW, FakeTaskInstance, Tasks, ids_in, rows_of, run_task

pytestmark = pytest.mark.usefixtures("sources")

FIRST = "000000"
Told = Callable[[str], int]


def held(target: Target, seconds: float = 3_600, chunk_id: str = FIRST) -> Claim:
    """Somebody else takes the chunk, under a lease of so many seconds."""
    with opened(target) as ledger:
        return ledger.claim(ledger.chunk(BACKFILL_ID, chunk_id), me("worker-3:4711"), seconds)


def completed(target: Target, claim: Claim) -> None:
    """The holder is through, without rows."""
    with opened(target) as ledger:
        ledger.complete(claim, 0, [])


class Chunk:
    """The first chunk of a window that is planned."""

    def __init__(self) -> None:
        tasks = Tasks()
        [self.mapped, *_] = tasks.plan()
        self.source = tasks.source
        self.ti = tasks.ti("chunk", map_index=0)

    def operator(self, **arguments: Any) -> ChunkedBackfillOperator:
        return ChunkedBackfillOperator(task_id="chunk", **{**self.source, **self.mapped, **arguments})

    def deferred(self, **arguments: Any) -> TaskDeferred:
        return deferred(lambda: run_task(self.operator(**arguments), self.ti))

    def resumed(self, wait: TaskDeferred, **changes: Any) -> Any:
        return resumed(self.operator(), wait, self.ti, **changes)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Told:
    """How often the log has the words so far. Airflow 3 only prints it, Airflow 2 does both."""
    caplog.set_level("INFO")
    printed: list[str] = []

    def count(words: str) -> int:
        printed.append(capsys.readouterr().out)
        return max(text.count(words) for text in (caplog.text, "".join(printed)))

    return count


@contextmanager
def quick(seconds: float) -> Any:
    """Nothing in here sleeps for long."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


class TestDeferral:
    def test_the_trigger_of_a_held_chunk(self, warehouse: Target) -> None:
        chunk = Chunk()
        held(warehouse, 600)
        with quick(10):
            wait = chunk.deferred()
        stored = restored(wait.trigger)
        single = warehouse.dialect.single_process
        assert (stored.backfill_id, stored.chunk_id, stored.holder) == (BACKFILL_ID, FIRST, "worker-3:4711")
        assert (stored.conn_id, stored.dataset_name) == ((None, None) if single else ("warehouse", "web_raw"))
        assert stored.seconds == BLIND_SECONDS if single else 590 < stored.seconds <= 600
        assert 3_590 < stored.deadline - time.time() <= 3_600
        assert wait.timeout > timedelta(seconds=3_590 + GRACE_SECONDS)
        # Nothing is held by a task that is not there, and nothing can be given back.
        chunk.operator().on_kill()
        assert rows_of(warehouse)[0].claimed_by == "worker-3:4711"

    def test_no_secret_is_stored(self, warehouse: Target) -> None:
        """Whatever names the database, Airflow stores the trigger."""
        if warehouse.dialect.single_process:
            url = f"duckdb:///{warehouse.credentials}?password=hunter2"
        else:
            url = warehouse.credentials
        chunk = Chunk()
        held(warehouse, 30)
        for destination in (url, lambda: warehouse.dialect.build_destination(warehouse.credentials)):
            wait = chunk.deferred(conn_id=None, destination=destination)
            stored = json.dumps(wait.trigger.serialize())
            assert warehouse.credentials not in stored
            assert "://" not in stored
            assert "hunter2" not in stored
            assert (wait.trigger.conn_id, wait.trigger.dataset_name) == (None, None)
            assert 20 < wait.trigger.seconds <= 30

    def test_the_lease_of_a_killed_worker_runs_out(self, warehouse: Target, told: Told) -> None:
        chunk = Chunk()
        held(warehouse, 4)
        result, deferrals = run_to_the_end(chunk.operator(), chunk.ti)
        assert (result["status"], deferrals) == ("completed", 1)
        assert rows_of(warehouse)[0].attempt == 2
        assert ids_in(warehouse) == [1]
        assert told("waiting, chunk 1 is held by worker-3:4711 until ") == 1

    def test_the_holder_completes_it(self, warehouse: Target, told: Told) -> None:
        chunk = Chunk()
        claim = held(warehouse)
        wait = chunk.deferred()
        completed(warehouse, claim)
        assert chunk.resumed(wait)["status"] == "skipped"
        assert told("already completed (0 records)") == 1
        assert rows_of(warehouse)[0].attempt == 1

    def test_a_wait_that_goes_on_keeps_its_deadline_and_is_told_once(
        self, warehouse: Target, told: Told
    ) -> None:
        chunk = Chunk()
        held(warehouse)
        wait = chunk.deferred()
        again = deferred(lambda: chunk.resumed(wait))
        assert again.trigger.deadline == wait.trigger.deadline
        assert told("waiting, ") == 1
        # Somebody else got it in between: that is news.
        end_leases(warehouse)
        with opened(warehouse) as ledger:
            ledger.claim(ledger.chunk(BACKFILL_ID, FIRST), me("worker-4:1"), 3_600)
        other = deferred(lambda: chunk.resumed(again))
        assert (other.trigger.holder, other.trigger.deadline) == ("worker-4:1", wait.trigger.deadline)
        assert told("waiting, ") == 2

    def test_at_the_deadline_the_task_fails_and_names_the_holder(self, warehouse: Target) -> None:
        chunk = Chunk()
        held(warehouse)
        wait = chunk.deferred()
        message = "chunk 1 is held by worker-3:4711 until .* unless renewed; wait until it is done"
        with pytest.raises(AirflowException, match=message) as caught:
            chunk.resumed(wait, deadline=time.time() - 1)
        # The triggerer's clock may be ahead of the worker's.
        with pytest.raises(AirflowException, match="held by worker-3:4711"):
            chunk.resumed(wait, over=True)
        assert not isinstance(caught.value, AirflowFailException)

    def test_the_setting_bounds_the_wait(self, warehouse: Target, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CHUNKED_BACKFILL__WAIT_TIMEOUT_SECONDS", "1.5")
        chunk = Chunk()
        held(warehouse)
        with pytest.raises(AirflowException, match="is held by"), quick(30):
            run_to_the_end(chunk.operator(), chunk.ti)

    def test_a_claim_of_another_backfill_is_waited_for(self, warehouse: Target) -> None:
        chunk = Chunk()
        half = Tasks("other").plan(chunk="12h")[1]
        with opened(warehouse) as ledger:
            row = ledger.chunk(half["backfill_id"], half["chunks"][0][0])
            claim = ledger.claim(row, me("worker-3:4711"), 3_600)
        assert chunk.deferred().trigger.holder == "worker-3:4711"
        with opened(warehouse) as ledger:
            ledger.fail(claim, "the API is down")
        assert run_to_the_end(chunk.operator(), chunk.ti)[0]["status"] == "completed"

    def test_a_task_that_is_not_mapped(self, warehouse: Target) -> None:
        def operator() -> ChunkedBackfillOperator:
            return ChunkedBackfillOperator(
                task_id="alone",
                source="page_view_source:page_views",
                conn_id="warehouse",
                dataset_name="web_raw",
                chunk="5d",
                start=WINDOW["start"],
                end=WINDOW["end"],
            )

        ti = FakeTaskInstance(task_id="alone")
        Tasks().plan(chunk="5d")
        [row] = rows_of(warehouse)
        with opened(warehouse) as ledger:
            ledger.claim(row, me(), 3_600)
        wait = deferred(lambda: run_task(operator(), ti))
        end_leases(warehouse)
        assert resumed(operator(), wait, ti)["rows"] == 5

    def test_a_holder_without_a_lease_is_not_waited_for(self, warehouse: Target) -> None:
        chunk = Chunk()
        held(warehouse)
        sql(warehouse, "UPDATE {ledger} SET lease_expires_at = NULL")
        with pytest.raises(AirflowException, match="held by worker-3:4711 without a lease"):
            run_task(chunk.operator(), chunk.ti)


class TestInTheWorker:
    def test_it_waits_there(self, warehouse: Target, told: Told) -> None:
        chunk = Chunk()
        held(warehouse, 2)
        assert run_task(chunk.operator(deferrable=False), chunk.ti)["status"] == "completed"
        assert rows_of(warehouse)[0].attempt == 2
        assert told("waiting, ") == 1

    def test_for_too_long(self, warehouse: Target, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CHUNKED_BACKFILL__WAIT_TIMEOUT_SECONDS", "0.1")
        chunk = Chunk()
        held(warehouse)
        with pytest.raises(AirflowException, match="held by worker-3:4711 until"):
            run_task(chunk.operator(deferrable=False), chunk.ti)
        tasks = Tasks()
        tasks.plan()
        with pytest.raises(AirflowFailException, match=r"chunk 1/5 .*: held by worker-3:4711"):
            tasks.report()

    def test_what_is_left_of_a_lease_for_a_moment(self, warehouse: Target) -> None:
        chunk = Chunk()
        held(warehouse, 0.8)
        assert run_to_the_end(chunk.operator(), chunk.ti)[1] == 0

"""The trigger against a real ledger: what ends the wait for a chunk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.triggers import chunk
from airflow_provider_backfill.triggers.chunk import ChunkTrigger
from tests.support.deferral import fired
from tests.support.ledgers import LONG, end_leases, me, opened, plan, seeded, sql, take, wait_until

PLAN = plan()
ROW = {"backfill_id": PLAN.backfill_id, "chunk_id": PLAN.chunks[0].chunk_id}


def trigger(**changes: Any) -> ChunkTrigger:
    arguments: dict[str, Any] = {"seconds": LONG, "deadline": time.time() + LONG, **ROW, **changes}
    return ChunkTrigger(conn_id="warehouse", dataset_name="web_raw", **arguments)


def _complete(target: Target) -> None:
    with opened(target) as ledger:
        ledger.complete(take(ledger, PLAN), 0, [])


def _fail(target: Target) -> None:
    with opened(target) as ledger:
        ledger.fail(take(ledger, PLAN), "the API is down")


def _pending(target: Target) -> None:
    pass


def _restate(target: Target) -> None:
    _complete(target)
    with opened(target) as ledger:
        ledger.restate(*ROW.values())


def _lapse(target: Target) -> None:
    with opened(target) as ledger:
        take(ledger, PLAN)
    end_leases(target)


def _vanish(target: Target) -> None:
    sql(target, "DELETE FROM {ledger}")


def _without_a_lease(target: Target) -> None:
    with opened(target) as ledger:
        take(ledger, PLAN)
    sql(target, "UPDATE {ledger} SET lease_expires_at = NULL")


@pytest.mark.parametrize("happen", [_complete, _fail, _pending, _restate, _lapse, _vanish, _without_a_lease])
def test_what_needs_no_wait(warehouse: Target, happen: Callable[[Target], None]) -> None:
    seeded(warehouse, PLAN)
    happen(warehouse)
    began = time.monotonic()
    asyncio.run(fired(trigger()))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("warehouse", ["postgres"], indirect=True)
class TestMeanwhile:
    """What happens while a trigger waits; it must not fire before that."""

    @pytest.fixture(autouse=True)
    def _soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(chunk, "POLL_SECONDS", 0.2)

    def fires_after(self, change: Callable[[], None]) -> None:
        async def both() -> None:
            waiting = asyncio.create_task(fired(trigger()))
            done, _ = await asyncio.wait({waiting}, timeout=1)
            assert not done
            await asyncio.to_thread(change)
            await waiting

        asyncio.run(both())

    def test_the_holder_gives_it_back(self, warehouse: Target) -> None:
        seeded(warehouse, PLAN)
        with opened(warehouse) as ledger:
            claim = take(ledger, PLAN)

        def fail() -> None:
            with opened(warehouse) as ledger:
                ledger.fail(claim, "stopped")

        self.fires_after(fail)

    def test_the_holder_completes_it(self, warehouse: Target) -> None:
        seeded(warehouse, PLAN)
        with opened(warehouse) as ledger:
            claim = take(ledger, PLAN)

        def complete() -> None:
            with opened(warehouse) as ledger:
                ledger.complete(claim, 0, [])

        self.fires_after(complete)

    def test_a_chunk_of_another_backfill_is_in_the_way(self, warehouse: Target) -> None:
        other = plan(days=1, size="12h")
        seeded(warehouse, PLAN, other)
        with opened(warehouse) as ledger:
            claim = take(ledger, other, 1)

        def fail() -> None:
            with opened(warehouse) as ledger:
                ledger.fail(claim, "stopped")

        self.fires_after(fail)

    def test_its_database_does_not_answer_for_a_while(
        self, warehouse: Target, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seeded(warehouse, PLAN)
        with opened(warehouse) as ledger:
            take(ledger, PLAN)
        troubles: list[BaseException] = []
        told = ChunkTrigger._told

        def count(trigger: ChunkTrigger, trouble: BaseException) -> str:
            troubles.append(trouble)
            return told(trigger, trouble)

        monkeypatch.setattr(ChunkTrigger, "_told", count)

        def come_back_with_the_lease_over() -> None:
            sql(warehouse, "ALTER TABLE {ledger} RENAME TO elsewhere")
            wait_until(lambda: troubles)
            sql(warehouse, 'ALTER TABLE web_raw.elsewhere RENAME TO "_dlt_backfills"')
            end_leases(warehouse)

        self.fires_after(come_back_with_the_lease_over)


@pytest.mark.parametrize("warehouse", ["postgres"], indirect=True)
def test_the_databases_clock_says_when_a_lease_ends(warehouse: Target) -> None:
    seeded(warehouse, PLAN)
    with opened(warehouse) as ledger:
        ledger.claim(ledger.chunk(**ROW), me(), 2)
        began = time.monotonic()
    asyncio.run(fired(trigger(seconds=LONG)))
    # Not at the next look, ten seconds on.
    assert 1.5 < time.monotonic() - began < 6


@pytest.mark.parametrize("warehouse", ["postgres"], indirect=True)
def test_a_database_that_cannot_be_reached_is_left_to_the_task(
    warehouse: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk, "POLL_SECONDS", 0.2)
    for connection in ('{"conn_type": "postgres", "host": "127.0.0.1", "port": 1}', '{"conn_type": "http"}'):
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", connection)
        asyncio.run(fired(trigger(seconds=0.5)))


@pytest.mark.parametrize("warehouse", ["duckdb"], indirect=True)
def test_a_file_in_use_counts_as_held(warehouse: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators do not have it looked at; whoever does all the same must not be told of an error."""
    monkeypatch.setattr(chunk, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(chunk, "LOOK_SECONDS", 1)
    seeded(warehouse, PLAN)
    with opened(warehouse):
        # This process has it open for writing, so that it cannot be opened read-only beside.
        began = time.monotonic()
        asyncio.run(fired(trigger(seconds=0.5)))
    assert 0.5 <= time.monotonic() - began < 5

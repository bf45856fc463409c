"""Several processes and one DuckDB file: they extract at the same time and take turns at the file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.runner import this_claimant
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.exceptions import LedgerBusyError
from tests.support.crowds import crowd
from tests.support.duckdb_files import held_by_another_process
from tests.support.ledgers import end_leases, everything
from tests.support.sources import events, source_of
from tests.support.worlds import IDS, World


def run_one(number: int, barrier: Any, world: World, meeting: str, backfill_id: str) -> bool:
    backfill = world.backfill(
        "tests.support.sources:meeting", days=4, arguments={"folder": meeting, "guests": 4}
    )
    barrier.wait(60)
    return backfill.runner.run_chunk(backfill_id, f"{number:06d}", this_claimant()).loaded


def test_four_chunks_at_once_extract_together_and_all_complete(
    duck_target: Target, settings: Settings, tmp_path: Path
) -> None:
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    # They beat in turn, too: a busy machine must not end their leases.
    world = World(duck_target, replace(settings, lease_seconds=60))
    _, plan = world.seeded(source_of(events(8)), days=4)
    with crowd(4) as processes:
        assert processes.run(run_one, world, str(meeting), plan.backfill_id) == [True] * 4
    assert {(row.status, row.attempt) for row in everything(duck_target)} == {(ChunkStatus.COMPLETED, 1)}
    assert world.query(IDS) == [(number, number * 10) for number in range(1, 5)]
    assert world.leftovers() == []


def test_the_wait_for_the_file_is_bounded_and_names_it_and_its_holder(
    duck_target: Target, make_settings: Callable[..., Settings]
) -> None:
    world = World(duck_target, make_settings(file_lock_timeout_seconds=0.3))
    backfill, plan = world.seeded(source_of(events(3)))
    with held_by_another_process(duck_target.credentials) as other:
        for step in (backfill.plan, lambda: backfill.seed(plan), lambda: world.run(backfill, plan, 1)):
            with pytest.raises(LedgerBusyError) as caught:
                step()
            message = str(caught.value)
            assert f"database '{duck_target.credentials}' stayed locked for 0.3 s: " in message
            assert f"(process {other.pid}) has it open" in message
            assert "[chunked_backfill] file_lock_timeout_seconds" in message
            assert "\n" not in message
    assert {row.status for row in everything(duck_target)} == {ChunkStatus.PENDING}


def test_a_file_that_is_taken_during_an_attempt_fails_it_and_nothing_else(
    duck_target: Target, make_settings: Callable[..., Settings]
) -> None:
    """The lock outlasts the wait: the chunk is free again once its lease has run out."""
    world = World(duck_target, make_settings(file_lock_timeout_seconds=0.3))
    with ExitStack() as other:
        reads: list[int] = []

        def rows() -> Any:
            yield from events(1)
            if not reads:
                other.enter_context(held_by_another_process(duck_target.credentials))
            reads.append(1)

        backfill, plan = world.seeded(source_of(rows), days=1)
        with pytest.raises(LedgerBusyError, match="stayed locked"):
            world.run(backfill, plan)
    end_leases(duck_target)
    [outcome] = world.run(backfill, plan)
    assert (outcome.attempt, len(reads)) == (2, 2)
    assert world.query(IDS) == [(1, 10)]
    assert world.leftovers() == []

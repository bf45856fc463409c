"""Planners, tasks and commands that meet on one source: one owner a chunk, no retry spent, no row twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_backfill.engine import drive
from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.runner import Outcome, this_claimant
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.window import ChunkSize
from airflow_provider_backfill.exceptions import ChunkHeldError
from tests.support.crowds import Crowd, crowd
from tests.support.ledgers import everything
from tests.support.worlds import IDS, ITEMS, World

SOURCES = "tests.support.sources:"


@pytest.fixture(scope="module")
def processes() -> Iterator[Crowd]:
    with crowd(8) as people:
        yield people


class Silent:
    """An observer that counts what was loaded."""

    def __init__(self) -> None:
        self.loaded: list[str] = []

    def running(self, claim: Any) -> None: ...

    def completed(self, claim: Any, records: int) -> None:
        self.loaded.append(claim.chunk_id)

    def failed(self, claim: Any, reason: str) -> None:
        raise AssertionError(f"chunk {claim.number}: {reason}")

    def waiting(self, rows: Any, seconds_left: float) -> None: ...

    def paused(self, control: Any) -> None: ...


# What runs in the processes


def patiently(backfill: Backfill, backfill_id: str, chunk_id: str) -> Outcome:
    """A chunk as a task runs it: while somebody else holds it, it waits."""
    while True:
        try:
            return backfill.runner.run_chunk(backfill_id, chunk_id, this_claimant())
        except ChunkHeldError:
            time.sleep(0.05)


def plan_and_run_one(number: int, barrier: Any, backfill: Backfill) -> bool:
    """A planner that runs the chunk of its own number."""
    backfill.source.load()
    barrier.wait(60)
    plan = backfill.plan()
    backfill.seed(plan)
    return patiently(backfill, plan.backfill_id, plan.chunks[number].chunk_id).loaded


def run_one(number: int, barrier: Any, backfill: Backfill, backfill_id: str, first: int) -> bool:
    backfill.source.load()
    barrier.wait(60)
    return patiently(backfill, backfill_id, f"{first + number - 1:06d}").loaded


def run_all(number: int, barrier: Any, backfill: Backfill) -> list[str]:
    """Two DAG runs, whose tasks take the chunks in order, and a command; the ids that each has loaded."""
    plan = backfill.plan()
    barrier.wait(60)
    backfill.seed(plan)
    if number == 2:
        observer = Silent()
        assert drive.run(backfill, plan, observer).covered
        return observer.loaded
    ids = [chunk.chunk_id for chunk in plan.chunks]
    return [chunk_id for chunk_id in ids if patiently(backfill, plan.backfill_id, chunk_id).loaded]


def run_window(number: int, barrier: Any, backfill: Backfill) -> tuple[int, bool]:
    """A command on a window that another one cuts its own way: how many chunks it loaded; is it covered."""
    backfill = replace(backfill, chunk=ChunkSize.parse("24h" if number else "1d"))
    barrier.wait(60)
    plan = backfill.plan()
    backfill.seed(plan)
    tally = drive.run(backfill, plan, Silent())
    return tally.completed, tally.covered


# What must come out


def owners_and_attempts(target: Target) -> set[tuple[ChunkStatus, int | None]]:
    return {(row.status, row.attempt) for row in everything(target)}


def test_a_cold_start_of_eight_planners_and_eight_chunks(
    processes: Crowd, pg_target: Target, settings: Settings
) -> None:
    """Ledger, schema and tables are made by all at once, and each chunk brings columns of its own."""
    world = World(pg_target, settings)
    backfill = world.backfill(f"{SOURCES}own_columns_source", days=8)
    assert processes.run(plan_and_run_one, backfill) == [True] * 8
    assert len(everything(pg_target)) == 8
    assert owners_and_attempts(pg_target) == {(ChunkStatus.COMPLETED, 1)}
    columns = ", ".join(f"only_{number}" for number in range(1, 9))
    assert world.query(f"SELECT id, concat({columns}) FROM @events ORDER BY id") == [
        (number, "x") for number in range(1, 9)
    ]
    columns = ", ".join(f"i.own_{number}" for number in range(1, 9))
    assert world.query(ITEMS) == [(number, 2) for number in range(1, 9)]
    assert world.query(f"SELECT DISTINCT concat({columns}) FROM @events__items i") == [("y",)]
    assert world.leftovers() == []


def test_two_dag_runs_and_a_command_on_one_window(
    processes: Crowd, target: Target, settings: Settings
) -> None:
    world = World(target, replace(settings, lease_seconds=60))
    backfill = world.backfill(f"{SOURCES}own_columns_source", days=8)
    loaded = processes.run(run_all, backfill, count=3)
    assert sorted(chunk_id for one in loaded for chunk_id in one) == [f"{n:06d}" for n in range(8)]
    assert owners_and_attempts(target) == {(ChunkStatus.COMPLETED, 1)}
    assert world.query(IDS) == [(number, number * 10) for number in range(1, 9)]
    assert world.query(ITEMS) == [(number, 2) for number in range(1, 9)]
    assert world.leftovers() == []


def test_two_windows_of_one_source_that_overlap(
    processes: Crowd, pg_target: Target, settings: Settings
) -> None:
    """Of two ways to cut one window, each range is loaded under one of them."""
    world = World(pg_target, settings)
    backfill = world.backfill(f"{SOURCES}own_columns_source", days=4)
    answers = processes.run(run_window, backfill, count=2)
    assert sum(loaded for loaded, _ in answers) == 4
    assert {covered for _, covered in answers} == {True}
    assert {row.status for row in everything(pg_target)} == {ChunkStatus.COMPLETED}
    loaded = [row.interval for row in everything(pg_target) if row.covered_by is None]
    assert len(set(loaded)) == len(loaded) == 4
    assert world.query(IDS) == [(number, number * 10) for number in range(1, 5)]
    assert world.leftovers() == []


@pytest.mark.parametrize("database", ["duckdb", "postgres"])
@pytest.mark.parametrize("strategy", ["delete_insert", "upsert"])
def test_merges_at_once_come_to_the_same_as_one_after_the_other(
    processes: Crowd, database: str, strategy: str, request: pytest.FixtureRequest, settings: Settings
) -> None:
    """Updates, inserts and hard deletes of one table with nested rows, four chunks at once."""
    target: Target = request.getfixturevalue("duck_target" if database == "duckdb" else "pg_target")
    results = []
    for dataset, count in (("serial", 1), ("parallel", 4)):
        # Four at one DuckDB file beat in turn; on a busy machine a short lease would not outlive that.
        world = World(replace(target, dataset_name=dataset), replace(settings, lease_seconds=60))
        backfill = world.backfill(f"{SOURCES}{strategy}_source", days=5)
        plan = backfill.plan()
        backfill.seed(plan)
        assert processes.run(run_one, backfill, plan.backfill_id, 1, count=1) == [True]
        for first in range(2, 6, count):
            assert processes.run(run_one, backfill, plan.backfill_id, first, count=count) == [True] * count
        assert owners_and_attempts(world.target) == {(ChunkStatus.COMPLETED, 1)}
        assert world.leftovers() == []
        items = "SELECT e.id, i.sku FROM @events e JOIN @events__items i ON i._dlt_parent_id = e._dlt_id"
        results.append(
            (
                world.query(IDS),
                sorted(world.query(items)),
                world.query("SELECT count(*), count(DISTINCT _dlt_id) FROM @events__items"),
            )
        )
    serial, parallel = results
    assert parallel == serial
    assert len(serial[0]) == 80 - 4 * 5 + 4 * 5
    [(rows, distinct)] = serial[2]
    assert rows == distinct == len(serial[1])

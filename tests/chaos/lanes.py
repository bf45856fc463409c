"""Lanes: processes that play scenarios side by side, each with databases of its own."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

from tests.chaos.matrix import Scenario
from tests.chaos.scenario import Result, play
from tests.chaos.warehouses import DuckdbWarehouse, PostgresWarehouse, Warehouse

_WAREHOUSES: dict[str, Callable[[Path], Warehouse]] = {
    "duckdb": DuckdbWarehouse,
    "postgres": PostgresWarehouse,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What all scenarios of a run have in common.

    Args:
        home: A directory for everything.
        mounting: Whether disks may be real ones.
        broken: A key of `sabotage.SABOTAGES`, or nothing.
    """

    home: Path
    mounting: bool
    broken: str = ""


def preload() -> None:
    """Import what the processes of a scenario need, once for all of them; it must start no thread."""
    import dlt.dataset.utils
    import dlt.destinations.impl.duckdb.duck
    import dlt.destinations.impl.postgres.postgres
    import dlt.destinations.sql_jobs
    import duckdb
    import psycopg2
    import pyarrow.parquet
    import tenacity

    import airflow_provider_backfill.cli
    import airflow_provider_backfill.engine.preflight
    import airflow_provider_backfill.engine.runner
    import tests.chaos.source as used
    from airflow_provider_backfill.engine.queries import load_queries

    # Once for all, lest somebody edit the statements while a long run goes on.
    load_queries("ledger.sql")
    del dlt, duckdb, psycopg2, pyarrow, tenacity, airflow_provider_backfill, used


def in_lanes(
    plays: Iterator[Scenario], enough: Callable[[Result], bool], conditions: Conditions, *, parallel: int
) -> None:
    """Play scenarios, in their order, until ``enough`` says so or there are no more.

    Args:
        plays: What to play.
        enough: Told of each result; once it says true, no other scenario begins.
        conditions: Where and how.
        parallel: How many at a time.
    """
    context = multiprocessing.get_context("fork")
    lanes: dict[Any, Any] = {}
    for number in range(parallel):
        ours, theirs = context.Pipe()
        # Each lane would keep the others' ends open.
        process = context.Process(target=_lane, args=(theirs, number, conditions, [ours, *lanes]))
        process.start()
        theirs.close()
        lanes[ours] = process
    done = False
    try:
        busy = set()
        idle = list(lanes)
        while True:
            while idle and not done:
                scenario = next(plays, None)
                if scenario is None:
                    done = True
                    break
                lane = idle.pop()
                lane.send(scenario)
                busy.add(lane)
            if not busy:
                return
            for lane in wait(list(busy)):
                result = cast(Connection, lane).recv()
                busy.discard(lane)
                idle.append(lane)
                done = enough(result) or done
    finally:
        for lane in lanes:
            lane.close()
        for process in lanes.values():
            process.join(30)
            if process.is_alive():
                process.kill()


def _lane(pipe: Connection, number: int, conditions: Conditions, foreign: list[Connection]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for connection in foreign:
        connection.close()
    home = conditions.home / f"lane-{number}"
    warehouses: dict[str, Warehouse] = {}
    played = 0
    try:
        while True:
            try:
                scenario: Scenario = pipe.recv()
            except EOFError:
                return
            name = scenario.destination
            if name not in warehouses:
                warehouses[name] = _WAREHOUSES[name](home / name)
            played += 1
            result = play(
                scenario,
                warehouses[name],
                home / f"play_{number}_{played}",
                mounting=conditions.mounting,
                broken=conditions.broken,
            )
            pipe.send(result)
    finally:
        for warehouse in warehouses.values():
            warehouse.close()

"""Where the time of an attempt and of a bare dlt run goes, step by step.

    python -m benchmarks.steps [--rows N] [--rounds N] [--database NAME] [--disposition NAME]

Functions are watched from outside: each has its own time, without that of watched functions that it calls.
"""

from __future__ import annotations

import argparse
import pkgutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from statistics import median
from typing import Any
from unittest import mock

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.attempt import BIG, DATABASES, Case, both
from benchmarks.harness import Program
from benchmarks.sources import rows_of
from tests.support.postgres import Postgres

#: What is watched: where it is looked up, and the step that it belongs to.
OURS: Mapping[str, str] = {
    "airflow_provider_backfill.engine.ledger.Ledger.claim": "claim",
    "airflow_provider_backfill.engine.ledger_reader.LedgerReader.chunk": "claim",
    "airflow_provider_backfill.engine.source.SourceSpec.load": "make the source",
    "airflow_provider_backfill.engine.runs.RunRecord.begin": "runs ledger",
    "airflow_provider_backfill.engine.runs.RunRecord.end": "runs ledger",
    "airflow_provider_backfill.engine.inputs.PlanInputs.check": "stored schema, inputs",
    "airflow_provider_backfill.engine.attempt.read_stored_schema": "stored schema, inputs",
    "dlt.pipeline.pipeline.Pipeline.extract": "extract",
    "dlt.pipeline.pipeline.Pipeline.normalize": "normalize",
    "airflow_provider_backfill.engine.attempt.load_stage": "load",
    "airflow_provider_backfill.engine.attempt.check_stage": "gates",
    "airflow_provider_backfill.engine.attempt.migrate": "migrate",
    "airflow_provider_backfill.engine.attempt.differences": "compare with the tables",
    "airflow_provider_backfill.engine.attempt.publish": "publish",
    "airflow_provider_backfill.engine.destinations.duckdb.Duckdb.drop_schema": "clean up",
    "airflow_provider_backfill.engine.destinations.postgres.Postgres.drop_schema": "clean up",
    "airflow_provider_backfill.engine.attempt.Attempt.clean_up": "clean up",
    "airflow_provider_backfill.engine.lease.Heartbeat.__exit__": "lease",
    "airflow_provider_backfill.engine.empty.mention": "neighbours",
}
THEIRS: Mapping[str, str] = {
    "dlt.pipeline.pipeline.Pipeline.sync_destination": "stored schema, state",
    "dlt.pipeline.pipeline.Pipeline.extract": "extract",
    "dlt.pipeline.pipeline.Pipeline.normalize": "normalize",
    "dlt.pipeline.pipeline.Pipeline.load": "load",
    "dlt.load.utils.init_client": "migrate",
}
#: Opening a connection, whoever does it.
CONNECTS = ("psycopg2.connect", "duckdb.connect")
OTHER = "other"


class Watch:
    """Adds up the time of steps, each without those inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.counts: dict[str, int] = defaultdict(int)
        self._inside: list[float] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        self._inside.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self.seconds[name] += took - self._inside.pop()
            self.counts[name] += 1
            if self._inside:
                self._inside[-1] += took

    def wrap(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(function)
        def watched(*arguments: Any, **more: Any) -> Any:
            # The lease's thread has a connection of its own, and no part in this.
            if threading.current_thread() is not threading.main_thread():
                return function(*arguments, **more)
            with self.step(name):
                return function(*arguments, **more)

        return watched


@contextmanager
def watching(places: Mapping[str, str]) -> Iterator[Watch]:
    """Watch functions while the block runs."""
    watch = Watch()
    with ExitStack() as patches:
        for place, name in {**places, **dict.fromkeys(CONNECTS, "connect")}.items():
            function = pkgutil.resolve_name(place)
            patches.enter_context(mock.patch(place, watch.wrap(function, name)))
        yield watch


def profile(program: Program, places: Mapping[str, str], rounds: int) -> Mapping[str, tuple[float, float]]:
    """Run a program; returns the median seconds of each step and how often it happened in a round."""
    seconds: dict[str, list[float]] = defaultdict(list)
    counts: dict[str, float] = {}
    for number in range(rounds + 2):
        with watching(places) as watch, watch.step(OTHER):
            program(number)
        if number >= 2:
            for name, took in watch.seconds.items():
                seconds[name].append(took)
            counts.update(watch.counts)
    return {name: (median(took), counts[name]) for name, took in seconds.items()}


def show(case: Case, steps: Sequence[tuple[str, Mapping[str, tuple[float, float]]]]) -> None:
    """Print both sides beside each other."""
    table = Table(title=f"{case.name}: milliseconds (times)", box=box.SIMPLE)
    table.add_column("step")
    for side, _ in steps:
        table.add_column(side, justify="right")
    for name in dict.fromkeys(name for _, found in steps for name in found if name != OTHER):
        table.add_row(name, *(_cell(found.get(name)) for _, found in steps))
    table.add_row(OTHER, *(_cell(found.get(OTHER)) for _, found in steps))
    table.add_row("all", *(f"{1000 * sum(took for took, _ in found.values()):.1f}" for _, found in steps))
    Console(width=120).print(table)


def _cell(found: tuple[float, float] | None) -> str:
    return f"{found[0] * 1000:.1f} ({found[1]:.0f})" if found else ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1, help=f"a day; {BIG} are nested")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--database", choices=DATABASES, default="postgres")
    parser.add_argument("--disposition", choices=("append", "merge"), default="append")
    options = parser.parse_args(arguments)
    case = Case(rows=options.rows, database=options.database, disposition=options.disposition)
    with Postgres() as server, both(case, server) as (ours, theirs):
        for number in range(options.rounds + 2):
            rows_of(number, case.rows, case.nested)
        found = [
            (side, profile(program, places, options.rounds))
            for side, program, places in (("ours", ours, OURS), ("dlt", theirs, THEIRS))
        ]
    show(case, found)
    return 0


if __name__ == "__main__":
    main()

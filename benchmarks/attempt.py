"""One attempt at a chunk against a bare ``dlt.pipeline(...).run(...)`` of the same rows.

Both sides run in this process, where Airflow's and the command's have imported dlt already; both load day
after day into tables that are there. Bare dlt has a new pipeline object each time, as a task has, its bounds
from dlt's ``TimeIntervalContext`` and its working directory from the run before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dlt
from dlt.common.configuration.container import Container
from dlt.extract.incremental.context import TimeIntervalContext

from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.runner import this_claimant
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.targets import target_from_url
from airflow_provider_backfill.engine.window import ChunkSize, Window
from benchmarks.harness import Figure, Scale, compared
from benchmarks.sources import DAY, FIRST, events, rows_of
from tests.support.postgres import Postgres, fresh_database

GROUP = "attempt"
DATABASES = ("duckdb", "postgres")
#: More than rounds there can be.
DAYS = 200
BIG = 86_400
#: By rows and database; the same for append and merge.
BUDGETS = {
    (1, "duckdb"): 1.25,
    (1, "postgres"): 1.25,
    (1_000, "duckdb"): 1.25,
    (1_000, "postgres"): 1.25,
    (BIG, "duckdb"): 0.4,
    (BIG, "postgres"): 0.9,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What both sides load each day."""

    rows: int
    database: str
    disposition: str

    @property
    def nested(self) -> bool:
        return self.rows == BIG

    @property
    def name(self) -> str:
        what = f"{self.rows:,} row{'s' if self.rows > 1 else ''}{', nested' if self.nested else ''}"
        return f"{what}, {self.disposition}, {self.database}"

    def source(self, day: int) -> Any:
        return events(day, self.rows, disposition=self.disposition, nested=self.nested)


class Ours:
    """A backfill by days, of which each round is the next chunk, claim included."""

    def __init__(self, case: Case, url: str, directory: str) -> None:
        self._case = case
        self._url = url
        self._settings = Settings(work_dir=directory)
        self._plan: BackfillPlan | None = None

    def _backfill(self, day: int) -> Backfill:
        return Backfill(
            source=SourceSpec(reference=self._case.source(day)),
            target=target_from_url(self._url, "ours"),
            window=Window(start=FIRST, end=FIRST + DAYS * DAY),
            chunk=ChunkSize.parse("1d"),
            settings=self._settings,
        )

    def __call__(self, number: int) -> None:
        assert self._plan is not None
        outcome = self._backfill(number).runner.run_chunk(
            self._plan.backfill_id, f"{number:06d}", this_claimant()
        )
        assert outcome.records == self._case.rows * (2 if self._case.nested else 1)

    def prepare(self) -> None:
        backfill = self._backfill(0)
        self._plan = backfill.plan()
        backfill.seed(self._plan)


class Theirs:
    """A pipeline that loads one day a round."""

    def __init__(self, case: Case, url: str, directory: str) -> None:
        self._case = case
        self._url = url
        self._directory = directory

    def __call__(self, number: int) -> None:
        build = dlt.destinations.duckdb if self._case.database == "duckdb" else dlt.destinations.postgres
        url = self._url.removeprefix("duckdb:///") if self._case.database == "duckdb" else self._url
        pipeline = dlt.pipeline(
            pipeline_name="bench",
            pipelines_dir=self._directory,
            destination=build(credentials=url),
            dataset_name="theirs",
        )
        start = FIRST + number * DAY
        bounds = TimeIntervalContext(interval=(start, start + DAY), allow_external_schedulers=True)
        with Container().injectable_context(bounds):
            pipeline.run(self._case.source(number)())


def figures(scale: Scale) -> Iterator[Figure]:
    """The group's figures; the database server is started once."""
    sizes = (1, 1_000) if scale.quick else (1, 1_000, BIG)
    with Postgres() as server:
        for rows in sizes:
            for database in DATABASES:
                for disposition in ("append", "merge"):
                    yield figure(Case(rows=rows, database=database, disposition=disposition), server, scale)


def figure(case: Case, server: Postgres, scale: Scale) -> Figure:
    """Measure one pair in empty databases."""
    with both(case, server) as (ours, theirs):
        rounds = scale.rounds * (1 if case.rows == BIG else 4)
        for number in range(rounds + 2):
            # Made before the clock starts.
            rows_of(number, case.rows, case.nested)
        return compared(
            GROUP,
            case.name,
            ours,
            theirs,
            against="dlt",
            most=BUDGETS[case.rows, case.database],
            rounds=rounds,
            # The first creates the tables.
            warm_ups=2,
        )


@contextmanager
def both(case: Case, server: Postgres) -> Iterator[tuple[Ours, Theirs]]:
    """Both sides, each with a database of its own."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = []
        for side in ("ours", "theirs"):
            (directory / side).mkdir()
            urls.append(
                stack.enter_context(fresh_database(server))
                if case.database == "postgres"
                else f"duckdb:///{directory}/{side}/warehouse.duckdb"
            )
        ours = Ours(case, urls[0], str(directory / "ours" / "work"))
        ours.prepare()
        rows_of.cache_clear()
        yield ours, Theirs(case, urls[1], str(directory / "theirs" / "work"))

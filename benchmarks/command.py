"""The command against dlt-ops 0.1.0's, each a process of its own with a fresh database."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from airflow_provider_backfill.engine.targets import target_from_url
from benchmarks.harness import Cost, Figure, Scale, compared, cost_of
from benchmarks.projects import DATASET, DLT_OPS, Job, Project, hours
from tests.support.postgres import Postgres, fresh_database

GROUP = "command"
#: At least 2.5 times as fast on DuckDB, and 1.5 times on Postgres.
BUDGETS = {"duckdb": 1 / 2.5, "postgres": 1 / 1.5}
TABLES = {"hours": "readings", "flights": "departures"}


def figures(scale: Scale) -> Iterator[Figure]:
    if not DLT_OPS.exists():
        raise SystemExit(f"{DLT_OPS} is missing; run: make .venv-dlt-ops/.ready")
    with Postgres() as server, tempfile.TemporaryDirectory() as directory:
        for database, most in BUDGETS.items():
            home = Path(directory) / database
            project = Project(home, database)
            jobs = [("one-row chunks", hours(20 if scale.quick else 40))]
            if not scale.quick:
                jobs.append(("days of flights", project.flights(31)))
            for name, job in jobs:
                yield compared(
                    GROUP,
                    f"{job.chunks} {name}, {database}",
                    _program(project, job, project.ours, server),
                    _program(project, job, project.theirs, server),
                    against="dlt-ops",
                    most=most,
                    rounds=scale.rounds,
                )


def _program(
    project: Project, job: Job, run: Callable[[Job, str], None], server: Postgres
) -> Callable[[int], Cost]:
    """A round: only the command is on the clock."""

    def program(_: int) -> Cost:
        with fresh(project, server) as url:
            cost = cost_of(lambda: run(job, url))
            assert _rows(url, TABLES[job.source]) == job.rows
        return cost

    return program


@contextmanager
def fresh(project: Project, server: Postgres) -> Iterator[str]:
    """The URL of an empty database."""
    project.forget()
    with ExitStack() as stack:
        if project.database == "postgres":
            yield stack.enter_context(fresh_database(server))
        else:
            yield f"duckdb:///{stack.enter_context(tempfile.TemporaryDirectory())}/warehouse.duckdb"


def _rows(url: str, table: str) -> int:
    target = target_from_url(url, DATASET)
    with target.connect(10, read_only=True) as session:
        [(count,)] = session.execute(f"SELECT count(*) FROM {target.table(table)}")
    return int(count)

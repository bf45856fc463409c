"""The main job on real input, through a real Airflow: January 2013 of New York's flights, day by day.

    python scripts/demo.py            run it, show what came of it, stop everything
    python scripts/demo.py --stay-up  and leave Airflow up until Ctrl-C

Everything it starts listens on 127.0.0.1 only and is stopped at the end; everything it writes is in a
directory of its own, which is deleted. Exits 1, with the ends of the logs, when anything differs from what
has to come out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

# It clears the environment of this process, so it comes first.
from tests.support import environment as environment  # noqa: E402
from tests.support.airflow import LocalAirflow  # noqa: E402
from tests.support.airflow_api import AirflowError, TaskInstance  # noqa: E402
from tests.support.postgres import Postgres, PostgresError  # noqa: E402

DAG_ID = "example_nyc_flights"
GROUP = "flights"
DATASET = "nyc"
CHUNKS = 31
ROWS = 27_004
ROWS_OF_UTC_DAYS = 26_865
OUTAGE_DAY = "2013-01-09"
OUTAGE_CHUNK = 9
#: How long one DAG run may take, seconds.
PATIENCE = 900.0

_STOPPING = (signal.SIGINT, signal.SIGTERM)


class UnexpectedError(Exception):
    """The job did not do what it has to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--stay-up", action="store_true", help="leave Airflow up until Ctrl-C")
    stay_up = parser.parse_args(arguments).stay_up
    for stopping in _STOPPING:
        signal.signal(stopping, _interrupt)
    home = Path(tempfile.mkdtemp(prefix="backfill-demo-"))
    try:
        say("Starting Airflow with a Postgres of its own; this takes about half a minute")
        with Postgres() as postgres, _airflow(home, postgres) as airflow:
            login = f"{airflow.address}, user {airflow.user}, password {airflow.password}"
            say(f"Airflow is at {login if stay_up else airflow.address}")
            demonstrate(airflow, home)
            if stay_up:
                say(f"Airflow stays at {login}; Ctrl-C stops it")
                _wait(airflow)
    except KeyboardInterrupt:
        print("\nStopped.")
        return 0 if stay_up else 130
    except (AirflowError, PostgresError, UnexpectedError) as error:
        print(f"\nThe demonstration failed: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(home, ignore_errors=True)
    say("Everything that was started is stopped")
    return 0


@contextmanager
def _airflow(home: Path, postgres: Postgres) -> Iterator[LocalAirflow]:
    with LocalAirflow(
        dags=ROOT / "dags_examples",
        database_url=postgres.create_database(),
        connections={"warehouse": json.dumps({"conn_type": "duckdb", "host": str(warehouse(home))})},
        environment={"EXAMPLE_OUTAGE": str(home / "outage")},
    ) as airflow:
        yield airflow


def demonstrate(airflow: LocalAirflow, home: Path) -> None:
    """Run the window twice and look at what stands in the database.

    Raises:
        UnexpectedError: Anything is not as it has to be; the text ends with the logs.
    """
    say(f"Triggering {DAG_ID}, where {OUTAGE_DAY} fails on its first try")
    (home / "outage").write_text(OUTAGE_DAY)
    try:
        airflow.wait_for_dags(DAG_ID)
        run_id, seconds = run(airflow)
        first = report(airflow, run_id)
        print(f"\n{tally(first)}, {seconds:.0f} seconds\n")
        rows = ledger(home)
        print_ledger(rows)
        count, early, late = look(
            home, f"SELECT count(*), min(time_hour)::TEXT, max(time_hour)::TEXT FROM {DATASET}.flights"
        )[0]
        print(f"\n{count:,} flights from {early} to {late} (days of UTC would give {ROWS_OF_UTC_DAYS:,})")
        expect("rows", count, ROWS)
        expect("rows by the ledger", sum(row["records_loaded"] for row in rows), ROWS)
        expect("chunks", Counter(row["status"] for row in rows), Counter(completed=CHUNKS))
        expect(
            "attempts",
            [row["attempt"] for row in rows],
            [2 if number == OUTAGE_CHUNK else 1 for number in range(1, CHUNKS + 1)],
        )
        expect("chunks the first DAG run loaded", (first["completed"], first["skipped"]), (CHUNKS, 0))

        say("Running the same window again")
        run_id, seconds = run(airflow)
        second = report(airflow, run_id)
        print(f"\n{tally(second)}, {seconds:.0f} seconds")
        expect("chunks the second DAG run loaded", (second["completed"], second["skipped"]), (0, CHUNKS))
        expect("the ledger", ledger(home), rows)
        expect("rows", look(home, f"SELECT count(*) FROM {DATASET}.flights"), [(ROWS,)])
    except (AirflowError, UnexpectedError) as error:
        raise UnexpectedError(f"{error}\n{airflow.tail()}") from None


def run(airflow: LocalAirflow) -> tuple[str, float]:
    """Trigger the DAG, print how far it is, and return the DAG run's id and its duration, seconds."""
    began = time.monotonic()
    run_id = airflow.api.trigger(DAG_ID)
    progress = Progress()
    state = airflow.api.wait(DAG_ID, run_id, timeout=PATIENCE, progress=progress)
    if state != "success":
        states = {f"{task.task_id} {task.label or ''}".strip(): task.state for task in progress.tasks}
        raise UnexpectedError(f"the DAG run ended as {state}: {states}")
    return run_id, time.monotonic() - began


class Progress:
    """Prints a line whenever a chunk is done, fails, or is tried again."""

    def __init__(self) -> None:
        self.tasks: list[TaskInstance] = []
        self._retries: set[int] = set()
        self._done = 0

    def __call__(self, tasks: list[TaskInstance]) -> None:
        self.tasks = tasks
        chunks = [task for task in tasks if task.task_id == f"{GROUP}.chunk" and task.map_index >= 0]
        done = sum(task.state == "success" for task in chunks)
        for task in chunks:
            if task.state == "up_for_retry" and task.map_index not in self._retries:
                self._retries.add(task.map_index)
                say(f"chunk {task.map_index + 1} failed; Airflow will try it again")
        if done != self._done:
            self._done = done
            say(f"{done:2} of {len(chunks)} chunks done")


def report(airflow: LocalAirflow, run_id: str) -> dict[str, Any]:
    """What the report task pushed."""
    value = airflow.api.xcom(DAG_ID, run_id, f"{GROUP}.report")
    if not isinstance(value, dict):
        raise UnexpectedError(f"the report task pushed {value!r}")
    return value


def tally(summary: dict[str, Any]) -> str:
    return (
        f"Backfill {summary['backfill_id']}: {summary['completed']} completed, {summary['skipped']} skipped, "
        f"{summary['claimed_elsewhere']} claimed elsewhere ({summary['total']} chunks)"
    )


def warehouse(home: Path) -> Path:
    return home / "warehouse.duckdb"


def look(home: Path, query: str) -> list[tuple[Any, ...]]:
    import duckdb

    with duckdb.connect(str(warehouse(home)), read_only=True) as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        rows: list[tuple[Any, ...]] = connection.execute(query).fetchall()
        return rows


def ledger(home: Path) -> list[dict[str, Any]]:
    columns = ("chunk_id", "chunk_from", "chunk_to", "status", "attempt", "records_loaded", "run_id")
    query = f"SELECT {', '.join(columns)} FROM {DATASET}._dlt_backfills ORDER BY chunk_id"
    return [dict(zip(columns, row, strict=True)) for row in look(home, query)]


def print_ledger(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("chunk", "from", "to", "status", "attempt", "rows", "run_id")
    for row in rows:
        cells = (row["chunk_id"], row["chunk_from"], row["chunk_to"], row["status"], row["attempt"])
        style = "bold" if row["attempt"] != 1 else None
        table.add_row(*map(str, (*cells, row["records_loaded"], row["run_id"])), style=style)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise UnexpectedError(f"{what}: {found} instead of {wanted}")


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def _wait(airflow: LocalAirflow) -> None:
    while True:
        airflow.check()
        time.sleep(1)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    # A second signal must not cut the clean-up of the first short.
    for stopping in _STOPPING:
        signal.signal(stopping, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

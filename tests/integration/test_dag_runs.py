"""Whole DAG runs through ``dag.test()``, each in a process of its own: DuckDB, Postgres, and a signal."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from airflow_provider_backfill.engine.targets import target_from_path, target_from_url
from tests.support.ledgers import opened, plan, seeded, take
from tests.support.postgres import Postgres
from tests.support.tasks import SOURCE, duckdb_connection, ids_in, postgres_connection, rows_of

ROOT = Path(__file__).parents[2]
PASSWORD = "p@ss:w/rd%"
QUOTED = quote(PASSWORD, safe="")


DAG = """
from datetime import timedelta

from airflow_provider_backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import DAG

with DAG(
    "web",
    schedule=None,
    params={{"start": "2026-01-01T00:00:00Z", "end": "2026-01-06T00:00:00Z"}},
) as dag:
    {operator}

if __name__ == "__main__":
    for _ in range({runs}):
        print("STATE", dag.test().state, flush=True)
"""
GROUP = """ChunkedBackfillOperator.expand_window(
        task_id="web_events", source="page_view_source:page_views", conn_id="warehouse",
        dataset_name="web_raw", start="{{{{ params.start }}}}", end="{{{{ params.end }}}}", chunk="1d",
        max_active_chunks=2, retries=1, retry_delay=timedelta(seconds=1), source_kwargs={kwargs!r},
    )"""


class Dags:
    """A throw-away Airflow with SQLite, whose DAG files are run as scripts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.dags = home / "dags"
        self.dags.mkdir(parents=True)
        (home / "page_view_source.py").write_text(SOURCE)
        self.environment = {
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(home)]),
        }
        self.environment.pop("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", None)
        subprocess.run(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            env=self.environment,
            check=True,
            capture_output=True,
        )

    def start(
        self, operator: str, *, connection: str, runs: int = 1, **environment: str
    ) -> subprocess.Popen[str]:
        path = self.dags / "web.py"
        path.write_text(DAG.format(operator=operator, runs=runs))
        return subprocess.Popen(
            [sys.executable, str(path)],
            env={**self.environment, "AIRFLOW_CONN_WAREHOUSE": connection, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, operator: str, **options: Any) -> str:
        """Run the DAG and return all that it printed."""
        with self.start(operator, **options) as process:
            output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output
        return output

    def stored(self) -> str:
        """Everything that Airflow keeps in its database, as text: XComs, rendered templates, DAGs."""
        with sqlite3.connect(self.home / "airflow.db") as database:
            return "\n".join(database.iterdump())

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.home / "airflow.db") as database:
            return database.execute(statement).fetchall()


@pytest.fixture(scope="module")
def dags(tmp_path_factory: pytest.TempPathFactory) -> Dags:
    return Dags(tmp_path_factory.mktemp("airflow"))


@pytest.fixture
def work_dir(tmp_path: Path) -> dict[str, Any]:
    return {"AIRFLOW__CHUNKED_BACKFILL__WORK_DIR": str(tmp_path / "work")}


def test_a_window_onto_duckdb(dags: Dags, tmp_path: Path, work_dir: dict[str, Any]) -> None:
    """The chunk of 01-03 fails once and is retried; a second DAG run finds nothing to do."""
    outage = tmp_path / "outage"
    outage.touch()
    target = target_from_path(str(tmp_path / "web.duckdb"), "web_raw")
    output = dags.run(
        GROUP.format(kwargs={"outage": str(outage)}),
        connection=duckdb_connection(target.credentials),
        runs=2,
        **work_dir,
    )
    assert output.count("STATE success") == 2
    assert "the API is down" in output
    line = "chunk 3/5 [2026-01-03T00:00:00+00:00 → 2026-01-04T00:00:00+00:00): "
    assert f"{line}running (run_id=559264ef1526bd83)" in output
    assert f"{line}completed (1 records)" in output
    tally = "Backfill d7a7c6e21e0d8ecb: {} completed, {} skipped, 0 claimed elsewhere (5 chunks)"
    assert tally.format(5, 0) in output
    assert tally.format(0, 5) in output
    assert ids_in(target) == [1, 2, 3, 4, 5]
    rows = rows_of(target)
    assert [(row.status, row.attempt) for row in rows] == [
        ("completed", 2 if n == 2 else 1) for n in range(5)
    ]
    assert {row.map_index for row in rows} == set(range(5))
    # In the second run the mapped task has nothing to map, which Airflow calls skipped.
    states = dags.query(
        "SELECT map_index, state, rendered_map_index FROM task_instance WHERE task_id LIKE '%chunk'"
    )
    assert (-1, "skipped", None) in states
    assert (2, "success", "2026-01-03 → 2026-01-04") in states


def test_one_chunk_onto_postgres_keeps_its_secret(
    dags: Dags, postgres_server: Postgres, postgres_url: str, work_dir: dict[str, Any], tmp_path: Path
) -> None:
    """A password that a URL must quote appears nowhere, even though the source's own error shows it.

    OpenLineage's provider is told of the failed try and of the one that loads the chunk.
    """
    postgres_server.execute(f"CREATE ROLE bob LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
    operator = """ChunkedBackfillOperator(
        task_id="web_events", source="page_view_source:page_views", conn_id="warehouse",
        dataset_name="web_raw", start="2026-01-03T00:00:00Z", end="2026-01-04T00:00:00Z", retries=1,
        retry_delay=timedelta(seconds=1), source_kwargs={{"outage": {outage!r}}},
    )"""
    outage = dags.home / "outage"
    outage.touch()
    lineage = tmp_path / "lineage.jsonl"
    transport = {"type": "file", "log_file_path": str(lineage), "append": True}
    try:
        output = dags.run(
            operator.format(outage=str(outage)),
            connection=postgres_connection(postgres_url, login="bob", password=PASSWORD),
            LEAK=f" for {PASSWORD} alias {QUOTED}",
            AIRFLOW__OPENLINEAGE__TRANSPORT=json.dumps(transport),
            **work_dir,
        )
    finally:
        target = target_from_url(postgres_url, "web_raw")
        [row] = rows_of(target)
        postgres_server.execute("DROP OWNED BY bob CASCADE", database=postgres_url.rpartition("/")[2])
        postgres_server.execute("DROP ROLE bob")
    assert "STATE success" in output
    assert "the API is down for *** alias ***" in output
    assert (row.status, row.attempt, row.chunk_size) == ("completed", 2, "1d")
    for text in (output, dags.stored(), json.dumps(row.as_json()), lineage.read_text()):
        assert PASSWORD not in text
        assert QUOTED not in text
    told = [
        event
        for event in map(json.loads, lineage.read_text().splitlines())
        if event["job"]["name"] == "web.web_events"
    ]
    assert [event["eventType"] for event in told] == ["START", "FAIL", "START", "COMPLETE"]
    assert [len(event["outputs"]) for event in told] == [0, 0, 0, 1]
    [output_dataset] = told[-1]["outputs"]
    address = urlsplit(postgres_url)
    assert output_dataset["namespace"] == f"postgres://{address.hostname}:{address.port}"
    assert output_dataset["name"] == f"{address.path.strip('/')}.web_raw.page_views"
    assert output_dataset["outputFacets"]["outputStatistics"]["rowCount"] == 1
    for event in (told[1], told[3]):
        facet = event["run"]["facets"]["chunkedBackfill"]
        assert (facet["backfillId"], facet["chunks"][0]["runId"]) == (row.backfill_id, row.run_id)
        assert facet["windowStart"] == "2026-01-03T00:00:00+00:00"


def test_a_login_that_fails_does_not_show_its_password(
    dags: Dags, postgres_url: str, work_dir: dict[str, Any]
) -> None:
    output = dags.run(
        GROUP.format(kwargs={}),
        connection=postgres_connection(postgres_url, password=PASSWORD),
        **work_dir,
    )
    assert "STATE failed" in output
    assert "password authentication failed" in output
    assert "nothing was planned; see the log of task web_events.plan" in output
    for text in (output, dags.stored()):
        assert PASSWORD not in text
        assert QUOTED not in text


def test_a_held_chunk_is_deferred_and_resumed(
    dags: Dags, postgres_url: str, work_dir: dict[str, Any]
) -> None:
    target, backfill = target_from_url(postgres_url, "web_raw"), plan()
    seeded(target, backfill)
    with opened(target) as ledger:
        claim = take(ledger, backfill, name="elsewhere:1")
    connection = postgres_connection(postgres_url)
    with dags.start(GROUP.format(kwargs={}), connection=connection, **work_dir) as process:
        printed = _read_until(process, "waiting, chunk 1 is held by elsewhere:1 until ")
        with opened(target) as ledger:
            ledger.fail(claim, "gave up")
        output = printed + _rest(process)
    assert "STATE success" in output
    assert "running trigger in line" in output
    assert [row.attempt for row in rows_of(target)] == [2, 1, 1, 1, 1]
    assert ids_in(target) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("database", ["duckdb", "postgres"])
def test_sigterm_gives_the_chunk_back_at_once(
    dags: Dags,
    tmp_path: Path,
    work_dir: dict[str, Any],
    database: str,
    request: pytest.FixtureRequest,
) -> None:
    if database == "duckdb":
        target = target_from_path(str(tmp_path / "web.duckdb"), "web_raw")
        connection = duckdb_connection(target.credentials)
    else:
        url = request.getfixturevalue("postgres_url")
        target, connection = target_from_url(url, "web_raw"), postgres_connection(url)
    operator = """ChunkedBackfillOperator(
        task_id="web_events", source="page_view_source:page_views", conn_id="warehouse",
        dataset_name="web_raw", start="2026-01-03T00:00:00Z", end="2026-01-04T00:00:00Z",
        source_kwargs={"pause": 120.0},
    )"""
    with dags.start(operator, connection=connection, **work_dir) as process:
        printed = _read_until(process, "the source reads")
        process.send_signal(signal.SIGTERM)
        # At once: the source would go on for two minutes.
        status = _wait_until(lambda: [(row.status, row.error) for row in rows_of(target)], 60)
        output = _rest(process)
    assert status == [("failed", "the task was told to stop")], printed + output
    assert "stopped by SIGTERM; the chunk was given back" in output
    assert "STATE failed" in output
    with target.connect(10) as session:
        assert target.dialect.schemas(session, "backfill_stage_") == []
    assert not any((tmp_path / "work").iterdir())


def _rest(process: subprocess.Popen[str]) -> str:
    """What is still to come; communicate() would lose what has been read ahead."""
    assert process.stdout is not None
    return process.stdout.read()


def _read_until(process: subprocess.Popen[str], words: str) -> str:
    """What it printed up to the line with the words; all of it if there is none."""
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        if words in line:
            break
    return "".join(printed)


def _wait_until(look: Callable[[], list[tuple[Any, ...]]], seconds: float) -> list[tuple[Any, ...]]:
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if any(status not in {"claimed", "running"} for status, _ in found) or time.monotonic() > deadline:
            return found
        time.sleep(0.1)

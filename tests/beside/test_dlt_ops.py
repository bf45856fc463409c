"""One ledger for two tools: what dlt-ops 0.1.0 leaves is finished here, and the reverse."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.ledger import OWN_COLUMNS
from airflow_provider_backfill.engine.plan import make_plan
from airflow_provider_backfill.engine.window import Window
from tests.integration.conftest import duckdb_target, postgres_target
from tests.support.commands import SECONDS
from tests.support.dlt_ops import Project
from tests.support.ledgers import wait_until

THREE = [(day, day * 10) for day in (1, 2, 3)]
PLAN = make_plan("web_events", Window.parse("2026-01-01", "2026-01-04"), "1d")
BACKFILL_ID = PLAN.backfill_id
RUN_IDS = [chunk.run_id for chunk in PLAN.chunks]


@pytest.fixture(scope="session")
def program() -> Path:
    named = os.environ.get("BESIDE_DLT_OPS")
    if not named:
        pytest.skip("dlt-ops has an environment of its own, which `make test-dlt-ops` makes and names here")
    path = Path(named)
    assert path.is_file(), f"BESIDE_DLT_OPS names no file: {named}"
    return path


@pytest.fixture
def pg_project(program: Path, tmp_path: Path, postgres_url: str) -> Project:
    return Project(tmp_path / "project", postgres_target(postgres_url), program)


@pytest.fixture
def duck_project(program: Path, tmp_path: Path) -> Project:
    return Project(tmp_path / "project", duckdb_target(tmp_path / "web.duckdb"), program)


@pytest.fixture(params=["duckdb", "postgres"])
def project(program: Path, request: pytest.FixtureRequest) -> Project:
    name = {"duckdb": "duck_project", "postgres": "pg_project"}[request.param]
    made: Project = request.getfixturevalue(name)
    return made


def query(target: Target, statement: str) -> list[tuple[object, ...]]:
    with target.connect(SECONDS) as session:
        return session.execute(statement)


def test_what_it_lost_is_held_until_it_is_released_and_finished_here(project: Project) -> None:
    project.lose()
    site = project.site
    assert site.statuses() == ["completed", "running", "pending"]
    before = {row.chunk_id: row for row in site.rows()}
    assert project.at_dataset("status").out[0].endswith("1 completed, 1 held, 1 pending (3 chunks)")

    # Nobody knows whether it is at work: what is free is loaded, and the rest waits for a word.
    site.environment["AIRFLOW__CHUNKED_BACKFILL__WAIT_TIMEOUT_SECONDS"] = "1"
    waited = project.ours("run", code=1)
    assert waited.out[-1] == f"Backfill {BACKFILL_ID}: 1 completed, 1 skipped, 1 claimed elsewhere (3 chunks)"
    assert site.statuses() == ["completed", "running", "completed"]
    project.at_dataset("release", "--all", "--yes")

    done = project.ours("run")
    assert done.out[-1] == f"Backfill {BACKFILL_ID}: 1 completed, 2 skipped, 0 claimed elsewhere (3 chunks)"
    assert site.loaded() == THREE
    rows = site.rows()
    assert [row.run_id for row in rows] == RUN_IDS == [row.run_id for row in before.values()]
    assert [str(row.status) for row in rows] == ["completed"] * 3
    # Its own chunk stands as it was.
    for name in ("pipeline_name", "claimed_by", "started_at", "completed_at", "records_loaded"):
        assert getattr(rows[0], name) == getattr(before["000000"], name)
    assert rows[0].pipeline_name == "web_events_pipeline"

    # The table has what it lacked, a key among it.
    with site.target.connect(SECONDS) as session:
        columns = site.target.dialect.table_columns(session, "web_raw", "_dlt_backfills")
        assert columns[17:] == list(OWN_COLUMNS)
        with pytest.raises(Exception, match=r"(?i)duplicate key"):
            session.execute(f"INSERT INTO {site.target.ledger} SELECT * FROM {site.target.ledger}")

    # Each knows the other's attempts.
    runs = [(run["run_id"], run["status"], run["trigger_source"]) for run in reversed(project.their_status())]
    assert runs == [
        (RUN_IDS[0], "completed", "backfill"),
        (RUN_IDS[1], "failed", "backfill"),
        (RUN_IDS[2], "completed", "backfill"),
        (RUN_IDS[1], "completed", "backfill"),
    ]
    assert project.at_dataset("status").out[-3] == "4 attempts: 3 completed, 1 failed"


def test_what_was_started_here_is_finished_by_it(project: Project) -> None:
    site = project.site
    site.tell("broken")
    project.ours("run", code=1)
    assert site.statuses() == ["completed", "failed", "pending"]
    site.untell("broken")
    said = project.theirs()
    assert f"Backfill {BACKFILL_ID}: 2 completed, 1 skipped, 0 claimed elsewhere (3 chunks)" in said
    assert site.loaded() == THREE
    rows = site.rows()
    assert [row.run_id for row in rows] == RUN_IDS
    assert [(str(row.status), row.records_loaded) for row in rows] == [("completed", 1)] * 3

    again = project.ours("run")
    assert again.out[-1] == f"Backfill {BACKFILL_ID}: 0 completed, 3 skipped, 0 claimed elsewhere (3 chunks)"
    runs = [(run["run_id"], run["status"], run["error_summary"]) for run in reversed(project.their_status())]
    assert runs == [
        (RUN_IDS[0], "completed", None),
        (RUN_IDS[1], "failed", "RuntimeError: the source broke"),
        (RUN_IDS[1], "completed", None),
        (RUN_IDS[2], "completed", None),
    ]
    assert site.loaded() == THREE


def test_chunks_that_it_has_planned_twice_are_refused_and_mended(pg_project: Project) -> None:
    """Two of its commands look for the row of a chunk before either has written it."""
    project, site = pg_project, pg_project.site
    day = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z", "--chunk", "1d")
    other = ("--from", "2026-01-05T00:00:00Z", "--to", "2026-01-06T00:00:00Z", "--chunk", "1d")
    project.theirs(*other)  # which makes the table
    query(
        site.target,
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_advisory_xact_lock_shared(42); RETURN NEW; END';"
        " CREATE TRIGGER wait BEFORE INSERT ON web_raw._dlt_backfills FOR EACH ROW EXECUTE FUNCTION wait()",
    )
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with project.started(*day) as one, project.started(*day) as two:
        with site.target.connect(SECONDS) as session, session.transaction():
            session.execute("SELECT pg_advisory_xact_lock(42)")
            wait_until(lambda: query(site.target, waiting) == [(2,)], SECONDS)
        # One has the chunk, and the other finds that it is held.
        ends = sorted((each.communicate(timeout=SECONDS)[0], each.returncode)[1] for each in (one, two))
    assert ends == [0, 1]
    query(site.target, "DROP TRIGGER wait ON web_raw._dlt_backfills")
    assert site.statuses() == ["completed"] * 3

    refused = project.ours("run", code=2)
    [error] = refused.err
    assert "has chunk 000000 of backfill 59cbba447dbc4e0a more than once" in error
    assert "more than one row has chunk 1/1" in "\n".join(project.at_dataset("status").out)
    assert project.at_dataset("mend", "--yes").out[-1] == "dropped 1 row; each chunk has one now"
    assert project.ours("run").out[-1].endswith("2 completed, 1 skipped, 0 claimed elsewhere (3 chunks)")
    assert site.loaded() == [*THREE, (5, 50)]
    # It goes on with the table that has a key now.
    assert "1 skipped" in project.theirs(*day)[-1]


def test_traces_of_both_stand_in_one_table(duck_project: Project) -> None:
    """Of each with a table that the other has made. On Postgres dlt-ops 0.1.0 cannot write its traces."""
    project, site = duck_project, duck_project.site
    site.environment["AIRFLOW__CHUNKED_BACKFILL__TRACE"] = "True"
    one, two, three = (
        ("--from", f"2026-01-0{day}T00:00:00Z", "--to", f"2026-01-0{day + 1}T00:00:00Z", "--chunk", "1d")
        for day in (1, 2, 3)
    )
    project.theirs(*one)
    project.ours("run", window=two)
    traces = (
        "SELECT pipeline_name, json_extract_string(steps, '$[0].step') FROM web_raw._dlt_trace ORDER BY 1"
    )
    both = [("web_events", "extract"), ("web_events_pipeline", "extract")]
    assert query(site.target, traces) == both
    query(site.target, "DROP TABLE web_raw._dlt_trace")
    query(site.target, "DELETE FROM web_raw._dlt_version WHERE schema_name = '_dlt_traces'")
    project.ours("run", window=three)
    project.theirs("--from", "2026-01-04T00:00:00Z", "--to", "2026-01-05T00:00:00Z", "--chunk", "1d")
    assert query(site.target, traces) == both

"""What `status` says on real databases, and that it says so whatever is wrong, and changes nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from airflow_provider_backfill.engine.destinations import Target
from tests.support.commands import BACKFILL_ID, THIRD_RUN_ID, Done, Site
from tests.support.duckdb_files import held_by_another_process
from tests.support.ledgers import foreign_row, foreign_table, plan
from tests.support.postgres import Postgres

ROLE, PASSWORD = "reader", "r3ad-0nly"


@pytest.fixture
def site(tmp_path: Path, target: Target) -> Site:
    return Site(home=tmp_path / "home", target=target)


@pytest.fixture
def pg_site(tmp_path: Path, pg_target: Target) -> Site:
    return Site(home=tmp_path / "home", target=pg_target)


@pytest.fixture
def duck_site(tmp_path: Path, duck_target: Target) -> Site:
    return Site(home=tmp_path / "home", target=duck_target)


def status(site: Site, *more: str, code: int = 0, destination: str | None = None) -> Done:
    place = ("--destination", destination or site.url, "--dataset", site.target.dataset_name)
    return site.invoke("status", *place, *more, code=code)


def document(site: Site, *more: str, **how: Any) -> Any:
    return json.loads("\n".join(status(site, "--json", *more, **how).out))


def cells(text: str) -> list[str]:
    return re.split(r"  +", text)


# What is there


def test_it_shows_chunks_pace_and_attempts(site: Site) -> None:
    site.tell("broken")
    for _ in range(2):
        site.quickly("run", code=1)
    shown = status(site).out
    assert shown[0] == (
        f"Backfill {BACKFILL_ID}, web_events [2026-01-01T00:00:00+00:00 → 2026-01-06T00:00:00+00:00) by 1d: "
        "2 completed, 1 failed, 2 pending (5 chunks)"
    )
    table = [cells(text) for text in shown[1:7]]
    assert table[0] == ["chunk", "interval", "status", "records", "attempt", "run_id", "note"]
    assert table[1] == ["1/5", "2026-01-01 → 2026-01-02", "completed", "1", "1", "2fe712c1ca2c99a0"]
    assert table[3] == [
        "3/5",
        "2026-01-03 → 2026-01-04",
        "failed",
        "2",
        THIRD_RUN_ID,
        "RuntimeError: the source broke",
    ]
    assert [row[2] for row in table[4:]] == ["pending", "pending"]
    assert re.fullmatch(r"[\d,.]+ chunks and [\d,.]+ rows an hour; about \d+ s left", shown[7])
    assert shown[8] == "4 attempts: 2 completed, 2 failed"
    attempts = [cells(text) for text in shown[9:]]
    assert attempts[0] == ["chunk", "started", "took", "status", "error"]
    assert [(row[0], *row[3:]) for row in attempts[1:]] == [
        ("3/5", "failed", "RuntimeError: the source broke")
    ] * 2

    said = document(site)
    [backfill] = said["backfills"]
    assert (backfill["backfill_id"], backfill["completed"], backfill["records"]) == (BACKFILL_ID, 2, 2)
    assert backfill["pace"]["chunks_per_hour"] == backfill["pace"]["rows_per_hour"] > 0
    assert backfill["pace"]["seconds_left"] > 0
    third = said["chunks"][2]
    assert (third["run_id"], third["status"], third["held"]) == (THIRD_RUN_ID, "failed", False)
    assert third["chunk_from"] == "2026-01-03T00:00:00+00:00"
    assert "claim_token" not in third
    assert [(each["run_id"], each["status"], each["error"]) for each in said["attempts"][2:]] == [
        (THIRD_RUN_ID, "failed", "RuntimeError: the source broke")
    ] * 2
    assert said["attempts"][0]["load_id"] == said["chunks"][0]["load_ids"]
    assert (said["absent"], said["reason"], said["attempts_unreadable"]) == (None, None, None)

    site.untell("broken")
    site.quickly("run")
    shown = status(site).out
    assert shown[7].endswith(" rows an hour")
    assert shown[8] == "7 attempts: 5 completed, 2 failed"


def test_a_ledger_of_another_tool_has_a_pace_and_says_which_chunk_stands_twice(site: Site) -> None:
    backfill = plan(3)
    first, _ = backfill.chunks[0].interval.instants
    done = {"started_at": first, "completed_at": first.replace(minute=30), "records_loaded": 500}
    rows = [foreign_row(backfill, 0, "completed", **done), *[foreign_row(backfill, 1, "pending")] * 2]
    foreign_table(site.target, [*rows, foreign_row(backfill, 2, "pending")])
    shown = status(site).out
    assert shown[0].endswith("1 completed, 3 pending (3 chunks)")
    assert shown[1] == "more than one row has chunk 2/3: mend it with chunked-backfill mend"
    assert shown[-1] == "2.0 chunks and 1,000 rows an hour; about 90 min left"
    assert document(site)["backfills"][0]["stand_twice"] == ["000001"]
    assert document(site)["attempts"] == []


# What is not


def test_no_runs_are_recorded(site: Site) -> None:
    reason = {"duckdb": "the database does not exist", "postgres": "dataset web_raw has no ledger"}
    kind = {"duckdb": "database", "postgres": "ledger"}
    name = site.target.dialect.name
    assert status(site).out == [f"no runs recorded ({reason[name]})"]
    assert document(site) == {
        "dataset": "web_raw",
        "absent": kind[name],
        "reason": None,
        "backfills": [],
        "chunks": [],
        "attempts": [],
        "attempts_unreadable": None,
    }
    assert not site.target.exists() or site.rows() == []
    foreign_table(site.target)
    assert status(site).out == ["no runs recorded (the ledger of dataset web_raw is empty)"]
    foreign_row(plan(), 0, "pending")
    site.quickly("run")
    other = status(site, "--source", "other").out
    assert other == ["no runs recorded (source other has none; dataset web_raw has: web_events)"]


def unreadable(site: Site, reason: str, **how: Any) -> None:
    """It says so in both forms, and ends with 1."""
    done = status(site, code=1, **how)
    [text] = done.out
    assert re.search(f"^ledger unreadable: .*{reason}", text), text
    assert done.err == []
    said = document(site, code=1, **how)
    assert (said["absent"], said["chunks"]) == ("unreadable", [])
    assert f"ledger unreadable: {said['reason']}" == text


@pytest.mark.parametrize("name", ["snowflake", "mysql"])
def test_a_ledger_is_unsupported(site: Site, name: str) -> None:
    destination = f"{name}://bob:hunter2@host/db"
    done = status(site, code=2, destination=destination)
    [text] = done.out
    assert text.startswith(
        f"ledger unsupported: destination '{name}' cannot carry the ledger beside the data"
    )
    assert done.err == []
    said = document(site, code=2, destination=destination)
    assert (said["absent"], f"ledger unsupported: {said['reason']}") == ("unsupported", text)


def test_a_connection_of_a_type_that_cannot_carry_it_is_unsupported(
    duck_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "http", "host": "example.org"}))
    done = duck_site.invoke("status", "--conn-id", "lake", "--dataset", "web_raw", code=2)
    assert done.out[0].startswith("ledger unsupported: connection 'lake' has type 'http'")


def test_a_database_that_does_not_answer_is_unreadable(pg_site: Site) -> None:
    parts = urlsplit(pg_site.url)
    password = str(parts.password)
    nobody = pg_site.url.replace(f":{parts.port}/", ":1/")
    unreadable(pg_site, "refused", destination=nobody)
    unreadable(pg_site, "authentication failed", destination=pg_site.url.replace(password, "hunter2"))
    assert "hunter2" not in "".join(
        status(pg_site, code=1, destination=pg_site.url.replace(password, "hunter2")).out
    )


def test_a_file_that_is_no_database_or_in_use_is_unreadable(duck_site: Site) -> None:
    duck_site.environment["AIRFLOW__CHUNKED_BACKFILL__FILE_LOCK_TIMEOUT_SECONDS"] = "1"
    path = Path(duck_site.target.credentials)
    path.write_text("nonsense")
    unreadable(duck_site, "not a valid DuckDB database file")
    path.unlink()
    with held_by_another_process(str(path)):
        unreadable(duck_site, r"stayed locked for 1 s: .*\(process \d+\) has it open")


def test_a_table_that_is_no_ledger_is_unreadable(site: Site) -> None:
    with site.target.connect(5) as session:
        site.target.dialect.create_schema(session, "web_raw")
        session.execute(f"CREATE TABLE {site.target.ledger} (id BIGINT)")
    unreadable(site, "source_section")


# That it only reads


@pytest.fixture
def reader(pg_site: Site, postgres_server: Postgres) -> Iterator[str]:
    """The URL of a role that may read the dataset's tables of now, and write nothing anywhere."""
    database = urlsplit(pg_site.url).path[1:]
    pg_site.quickly("run")

    def do(statement: str) -> None:
        postgres_server.execute(statement, database=database)

    do(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")
    do("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    do(f"GRANT USAGE ON SCHEMA web_raw TO {ROLE}")
    do(f"GRANT SELECT ON ALL TABLES IN SCHEMA web_raw TO {ROLE}")
    parts = urlsplit(pg_site.url)
    yield f"postgresql://{ROLE}:{PASSWORD}@{parts.hostname}:{parts.port}{parts.path}"
    do(f"DROP OWNED BY {ROLE}")
    do(f"DROP ROLE {ROLE}")


def test_a_role_that_may_only_read_is_enough(pg_site: Site, reader: str) -> None:
    by_owner, by_reader = document(pg_site), document(pg_site, destination=reader)
    assert by_reader == by_owner
    assert len(by_reader["attempts"]) == 5
    assert status(pg_site, destination=reader).out[-1] == "5 attempts: 5 completed"


def test_what_a_role_may_not_read_is_not_taken_for_absent(pg_site: Site, reader: str) -> None:
    with pg_site.target.connect(5) as session:
        session.execute(f"REVOKE SELECT ON web_raw._dlt_ops_runs FROM {ROLE}")
    shown = status(pg_site, destination=reader).out
    assert shown[-1] == "attempts unreadable: permission denied for table _dlt_ops_runs"
    said = document(pg_site, destination=reader)
    assert (len(said["chunks"]), said["attempts"]) == (5, None)
    with pg_site.target.connect(5) as session:
        session.execute(f"REVOKE SELECT ON web_raw._dlt_backfills FROM {ROLE}")
    unreadable(pg_site, "permission denied for table _dlt_backfills", destination=reader)
    with pg_site.target.connect(5) as session:
        session.execute(f"REVOKE USAGE ON SCHEMA web_raw FROM {ROLE}")
    unreadable(pg_site, "permission denied for schema web_raw", destination=reader)


def test_a_file_that_may_only_be_read_is_enough_and_stays_as_it_is(duck_site: Site) -> None:
    duck_site.quickly("run")
    path = Path(duck_site.target.credentials)
    with protected(path):
        before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent)))
        assert len(document(duck_site)["chunks"]) == 5
        assert status(duck_site).out[-1] == "5 attempts: 5 completed"
        assert (path.read_bytes(), path.stat().st_mtime_ns, sorted(os.listdir(path.parent))) == before


@contextmanager
def protected(path: Path) -> Iterator[None]:
    """A file in a directory that nobody may write to, the superuser aside."""
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        yield
    finally:
        path.parent.chmod(0o755)

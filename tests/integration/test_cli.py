"""The command on real databases: what it loads, what it says, what it refuses."""

from __future__ import annotations

import json
import os
import pty
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from airflow_provider_backfill.engine.destinations import Target
from tests.integration.conftest import postgres_target
from tests.support.commands import BACKFILL_ID, REPOSITORY, SOURCE, THIRD_RUN_ID, WINDOW, Site
from tests.support.postgres import Postgres, fresh_database

FIVE = [(day, day * 10) for day in range(1, 6)]


def line(number: int, text: str) -> str:
    bounds = f"[2026-01-0{number}T00:00:00+00:00 → 2026-01-0{number + 1}T00:00:00+00:00)"
    return f"chunk {number}/5 {bounds}: {text}"


@pytest.fixture
def site(tmp_path: Path, target: Target) -> Site:
    return Site(home=tmp_path / "home", target=target)


def test_a_failed_chunk_is_resumed_and_then_nothing_is_left_to_do(site):
    site.tell("broken")
    first = site.backfill("run", code=1)
    assert first.out == [
        line(1, "running (run_id=2fe712c1ca2c99a0)"),
        line(1, "completed (1 records)"),
        line(2, "running (run_id=91f2aafcc3320c98)"),
        line(2, "completed (1 records)"),
        line(3, f"running (run_id={THIRD_RUN_ID})"),
        line(3, "failed (RuntimeError: the source broke)"),
        f"Backfill {BACKFILL_ID}: 2 completed, 0 skipped, 0 claimed elsewhere (5 chunks)",
    ]
    assert first.err == [
        line(3, "failed (RuntimeError: the source broke)"),
        "2 pending",
        "error: the window is not covered, 2 of 5 chunks are completed; run the same command again to resume",
    ]
    assert site.statuses() == ["completed", "completed", "failed", "pending", "pending"]
    assert site.loaded() == FIVE[:2]

    site.untell("broken")
    second = site.backfill("run")
    assert second.out[0] == line(3, f"running (run_id={THIRD_RUN_ID})")
    assert second.out[-1] == f"Backfill {BACKFILL_ID}: 3 completed, 2 skipped, 0 claimed elsewhere (5 chunks)"
    assert second.err == []
    assert [row.attempt for row in site.rows()] == [1, 1, 2, 1, 1]
    assert [row.backfill_id for row in site.rows()] == [BACKFILL_ID] * 5

    third = site.backfill("run")
    assert third.out == [f"Backfill {BACKFILL_ID}: 0 completed, 5 skipped, 0 claimed elsewhere (5 chunks)"]
    assert third.err == []
    assert site.loaded() == FIVE
    assert site.stages() == []
    assert site.attempts() == []


def test_workers_share_the_chunks(site):
    done = site.backfill("run", "--concurrency", "4")
    finished = [text for text in done.out if text.endswith("completed (1 records)")]
    assert sorted(finished) == [line(number, "completed (1 records)") for number in range(1, 6)]
    assert done.out[-1] == f"Backfill {BACKFILL_ID}: 5 completed, 0 skipped, 0 claimed elsewhere (5 chunks)"
    assert done.err == []
    assert site.loaded() == FIVE
    assert [row.attempt for row in site.rows()] == [1] * 5
    assert len({row.claimed_by for row in site.rows()}) > 1


def test_a_plan_writes_nothing(site):
    done = site.backfill("plan", "--timezone", "America/New_York")
    pairs = dict(re.split(r"  +", text, maxsplit=1) for text in done.out)
    assert pairs["window"] == "[2026-01-01T00:00:00+00:00 → 2026-01-06T00:00:00+00:00)"
    assert pairs["in America/New_York"] == "2025-12-31T19:00 → 2026-01-05T19:00"
    assert (pairs["chunks"], pairs["ledger"], pairs["due"]) == ("5 of 1d", "none yet", "5")
    assert site.rows() == []
    if site.target.dialect.name == "duckdb":
        assert not Path(site.target.credentials).exists()
    else:
        with site.target.connect(10) as session:
            assert site.target.dialect.schemas(session, site.target.dataset_name) == []
    assert site.attempts() == []


def test_a_plan_counts_what_the_ledger_has(site):
    site.tell("broken")
    site.quickly("run", code=1)
    document = json.loads("\n".join(site.quickly("plan", "--json").out))
    estimate = document.pop("estimate")
    assert (estimate["history"], estimate["rows"]["median"]) == (2, 3)
    assert document == {
        "backfill_id": BACKFILL_ID,
        "source": "web_events",
        "resources": None,
        "from": "2026-01-01T00:00:00+00:00",
        "to": "2026-01-06T00:00:00+00:00",
        "timezone": "UTC",
        "chunk": "1d",
        "chunks": 5,
        "first": {
            "from": "2026-01-01T00:00:00+00:00",
            "to": "2026-01-02T00:00:00+00:00",
            "label": "2026-01-01 → 2026-01-02",
        },
        "last": {
            "from": "2026-01-05T00:00:00+00:00",
            "to": "2026-01-06T00:00:00+00:00",
            "label": "2026-01-05 → 2026-01-06",
        },
        "recorded": True,
        "control": None,
        "completed": 2,
        "covered": 0,
        "due": 3,
        "failed": 1,
        "held": 0,
        "missing": [{"from": "2026-01-03T00:00:00+00:00", "to": "2026-01-06T00:00:00+00:00"}],
        "missing_before": [],
        "max_chunks": 10_000,
        "above_max_chunks": False,
    }
    reasons = site.quickly("plan", "--explain").out
    assert any("due: it failed (RuntimeError: the source broke" in line for line in reasons)
    assert sum("completed (1 records)" in line for line in reasons) == 2
    compared = site.quickly("plan", "--chunk", "12h").out
    assert [line for line in compared if line.startswith("chunks")] == [
        "chunks     5 of 1d",
        "chunks     10 of 12h",
    ]
    assert "due        3 (1 failed)" in site.quickly("plan").out


def test_gaps_are_told_and_fail_where_that_is_asked_for(site):
    site.tell("broken")
    site.quickly("run", code=1)
    missing = "[2026-01-03T00:00:00+00:00 → 2026-01-06T00:00:00+00:00)"
    window = [SOURCE, *WINDOW[:4], *site.place]
    assert site.invoke("gaps", *window).out == [missing]
    assert site.invoke("gaps", *window, "--fail-on-gaps", code=1).out == [missing]
    assert json.loads("\n".join(site.invoke("gaps", *window, "--json").out)) == {
        "gaps": [{"from": "2026-01-03T00:00:00+00:00", "to": "2026-01-06T00:00:00+00:00"}]
    }
    done = [SOURCE, "--from", "2026-01-01", "--to", "2026-01-03", *site.place]
    assert site.invoke("gaps", *done, "--fail-on-gaps").out == ["no gaps"]


def test_status_imports_neither_dlt_nor_airflow(site):
    site.quickly("run")
    code = (
        "import sys; from airflow_provider_backfill.cli import main;"
        f"assert main(['status', *{site.place!r}], standalone_mode=False) == 0;"
        "sys.exit(' '.join({'airflow', 'dlt'} & sys.modules.keys()) or None)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, stdout=subprocess.PIPE)


def test_a_run_does_not_import_airflow(site):
    code = (
        "import sys; from airflow_provider_backfill.cli import main;"
        f"assert main(['run', {SOURCE!r}, *{WINDOW!r}, *{site.place!r}], standalone_mode=False) == 0;"
        "sys.exit('airflow' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=site.home)


def test_a_terminal_gets_a_progress_bar(tmp_path, duck_target):
    site = Site(home=tmp_path / "home", target=duck_target)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "airflow_provider_backfill.cli", "run", SOURCE, *WINDOW, *site.place],
        cwd=site.home,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "TERM": "xterm", "COLUMNS": "120"},
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    assert process.communicate(timeout=60)[1] == b""
    assert process.returncode == 0
    text = shown.decode()
    assert "5/5 chunks, 5 rows" in text
    assert "chunk 3/5 2026-01-03 → 2026-01-04" in text
    assert "run_id=" not in text
    assert text.rstrip().endswith("5 completed, 0 skipped, 0 claimed elsewhere (5 chunks)")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:
        # Linux's way to say that the other side has closed.
        return b""


# Passwords


@contextmanager
def login(server: Postgres, password: str) -> Iterator[str]:
    """The URL of an empty database for a login of its own with this password."""
    name = f"loader_{secrets.token_hex(4)}"
    server.execute(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD %s", (password,))
    try:
        with fresh_database(server) as url:
            _, _, place = url.rpartition("@")
            yield f"postgresql://{name}:{quote(password, safe='')}@{place}"
    finally:
        server.execute(f"DROP ROLE {name}")


def test_a_password_with_special_characters_works_and_is_never_shown(tmp_path, postgres_server):
    password = "p@ss/w:rd?#% ü'\"\\&=x"
    with login(postgres_server, password) as url:
        site = Site(home=tmp_path / "home", target=postgres_target(url))
        site.tell("broken")
        said = [site.backfill("run", "-v", "--debug", code=1)]
        site.untell("broken")
        said.append(site.backfill("run", "-v", "--debug", "--concurrency", "2"))
        said.append(site.invoke("status", *site.place, "--json"))
        assert site.loaded() == FIVE
        written = "\n".join(text for done in said for text in (*done.out, *done.err))
        written += repr(site.rows())
        assert password not in written
        assert quote(password, safe="") not in written


def test_a_wrong_password_is_one_line_without_it(tmp_path, postgres_server):
    wrong = postgres_server.url().replace(postgres_server.password, "hunter2%40%2F")
    site = Site(home=tmp_path / "home", target=postgres_target(wrong))
    [message] = site.backfill("run", code=1).err
    assert message.startswith("error: database 'postgres' cannot be opened: ")
    assert "hunter2" not in message


# Airflow connections


def connection(target: Target) -> str:
    """The target as an Airflow connection in JSON."""
    if target.dialect.name == "duckdb":
        return json.dumps({"conn_type": "duckdb", "host": target.credentials})
    parts = urlsplit(target.credentials)
    return json.dumps(
        {
            "conn_type": "postgres",
            "host": parts.hostname,
            "port": parts.port,
            "login": parts.username,
            "password": parts.password,
            "schema": parts.path.removeprefix("/"),
        }
    )


def test_an_airflow_connection_leads_to_the_same_backfill(tmp_path, target):
    site = Site(
        home=tmp_path / "home", target=target, environment={"AIRFLOW_CONN_WAREHOUSE": connection(target)}
    )
    place = ("--conn-id", "warehouse", "--dataset", target.dataset_name)
    # Each worker imports Airflow, which takes seconds, so one database has to do for two.
    workers = "2" if target.dialect.name == "duckdb" else "1"
    done = site.call("run", SOURCE, *WINDOW, *place, "--concurrency", workers)
    assert done.out[-1] == f"Backfill {BACKFILL_ID}: 5 completed, 0 skipped, 0 claimed elsewhere (5 chunks)"
    assert [text for text in done.out if not text.startswith("chunk ")] == done.out[-1:]
    assert done.err == []
    assert site.quickly("run").out[-1].endswith(": 0 completed, 5 skipped, 0 claimed elsewhere (5 chunks)")


def test_a_connection_that_airflow_does_not_have_is_misuse(tmp_path, duck_target):
    site = Site(home=tmp_path / "home", target=duck_target)
    done = site.call("status", "--conn-id", "nowhere", "--dataset", "web_raw", code=2)
    assert done.out == []
    assert done.err == ["error: Airflow has no connection 'nowhere'; see chunked-backfill status --help"]

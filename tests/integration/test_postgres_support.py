from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import psycopg2
import pytest

from tests.support.postgres import Postgres


@pytest.fixture(scope="module")
def own_server():
    with Postgres() as server:
        yield server


def test_each_test_gets_an_empty_database(postgres_url, postgres_server):
    assert postgres_url.startswith("postgresql://postgres:")
    name = postgres_url.rpartition("/")[2]
    tables = postgres_server.execute(
        "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'", database=name
    )
    assert tables == [(0,)]


def test_a_wrong_password_is_refused(postgres_server):
    wrong = postgres_server.url().replace(postgres_server.password, "wrong")
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(wrong)


def test_an_immediate_restart_keeps_what_was_committed_and_nothing_else(own_server):
    port = own_server.port
    own_server.execute("CREATE TABLE kept (n int)")
    own_server.execute("INSERT INTO kept VALUES (1)")
    open_connection = psycopg2.connect(own_server.url())
    with contextlib.closing(open_connection), open_connection.cursor() as cursor:
        cursor.execute("INSERT INTO kept VALUES (2)")
        own_server.restart_immediate()
        with pytest.raises(psycopg2.OperationalError):
            cursor.execute("SELECT 1")
    assert own_server.port == port
    assert own_server.execute("SELECT n FROM kept") == [(1,)]


def test_time_zones_are_installed(own_server):
    assert own_server.execute(
        "SELECT (timestamptz '2026-07-01T00:00:00Z' AT TIME ZONE 'Europe/Berlin')::text"
    ) == [("2026-07-01 02:00:00",)]


def test_stopping_leaves_no_process_and_no_file():
    server = Postgres().start()
    pid, home = server.pid, server._data.parent
    server.stop()
    assert not server.running
    assert not home.exists()
    assert _gone_within(1, pid)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's help is Linux's")
def test_the_server_dies_with_a_killed_owner():
    code = (
        "from tests.support.postgres import Postgres; server = Postgres().start();"
        "print(server.pid, server._data.parent, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, home = owner.stdout.readline().split()
        owner.send_signal(signal.SIGKILL)
    assert _gone_within(20, int(pid))
    shutil.rmtree(home)


def _gone_within(seconds: float, pid: int) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False

"""``chunked-backfill release``: what it takes, and what it says of a holder."""

from __future__ import annotations

import getpass
import os
import socket
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner

from airflow_provider_backfill._text import span
from airflow_provider_backfill.cli import main
from airflow_provider_backfill.cli.asking import person
from airflow_provider_backfill.cli.choosing import Position
from airflow_provider_backfill.cli.release import _cells, _lease, _since
from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from tests.support.commands import untouched

NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)
PLACE = ("--destination", "duckdb:///web.duckdb", "--dataset", "web_raw")


def row(**values: Any) -> ChunkRow:
    start = datetime(2026, 1, 3, tzinfo=UTC)
    standard = {
        "number": 3,
        "interval": Interval(start, start + timedelta(days=1)),
        "chunk_size": "1d",
        "claimed_by": "worker-3:4711",
        "claimed_at": NOW - timedelta(minutes=90),
        "lease_left": 38.2,
        "dag_id": None,
        "dag_run_id": None,
        "task_id": None,
        "map_index": None,
        "status": ChunkStatus.RUNNING,
    }
    return cast("ChunkRow", SimpleNamespace(**{**standard, **values}))


@pytest.mark.parametrize(
    ("text", "number", "total"),
    [
        ("3", 3, None),
        ("3/5", 3, 5),
        ("000000", 1, None),
        ("000002", 3, None),
        ("100000", 100_001, None),
        ("100000/200000", 100_000, 200_000),
        ("03", 3, None),
    ],
)
def test_a_chunk_is_a_number_from_1_or_an_id_from_0(text, number, total):
    assert Position.parse(text) == Position(number=number, total=total)


@pytest.mark.parametrize("text", ["0", "00", "-1", "3/", "/5", "3/5/7", "٣", "3.0", "", "first", " 3"])
def test_anything_else_is_no_chunk(text):
    with pytest.raises(click.BadParameter, match="is no chunk: pass its number from 1"):
        Position.parse(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "error: Missing option '--dataset'; "),
        (PLACE[2:], "error: Pass either --destination or --conn-id; "),
        ((*PLACE, "--chunk", "3"), "error: --chunk needs --backfill-id, "),
        ((*PLACE, "--backfill-id", "x", "--chunk", "3", "--all"), "error: Pass either --chunk or --all; "),
        (
            (*PLACE, "--backfill-id", "x", "--chunk", "0"),
            "error: Invalid value for '--chunk': '0' is no chunk",
        ),
    ],
)
def test_misuse_is_one_line(arguments, message):
    with untouched():
        result = CliRunner().invoke(main, ["release", *arguments])
    assert result.exit_code == 2
    assert result.stderr.startswith(message)
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (42, "42 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (5_400, "90 min"),
        (7_200, "2 h"),
        (100_000, "27 h"),
        (259_200, "3 d"),
    ],
)
def test_a_length_of_time_is_short(seconds, text):
    assert span(seconds) == text


def test_a_lease_lives_or_has_run_out_or_is_none():
    assert [_lease(left) for left in (38.2, 0.0, -42.4, None)] == [
        "38 s left",
        "ran out 0 s ago",
        "ran out 42 s ago",
        "none",
    ]


def test_a_holder_is_shown_with_its_task_and_the_age_of_its_claim():
    assert _cells(row(), 5, NOW) == (
        "3/5",
        "2026-01-03 → 2026-01-04",
        "worker-3:4711",
        "",
        "90 min ago",
        "38 s left",
    )
    task = {"dag_id": "web", "dag_run_id": "manual__1", "task_id": "views.chunk"}
    assert _cells(row(**task, map_index=2), 5, NOW)[3] == "web manual__1 views.chunk[2]"
    assert _cells(row(**task, map_index=-1), 5, NOW)[3] == "web manual__1 views.chunk"
    unknown = row(claimed_by=None, claimed_at=None, lease_left=None)
    assert _cells(unknown, 5, NOW)[2:] == ("an unknown worker", "", "unknown", "none")


def test_what_became_of_a_chunk_is_told():
    assert _since(row()) == "worker-3:4711 has claimed it since"
    assert _since(row(status=ChunkStatus.COMPLETED)) == "it was completed since"
    assert _since(row(status=ChunkStatus.FAILED)) == "it is failed already"
    assert _since(None) == "its row is gone"


def test_who_released_is_named_even_where_the_account_has_no_name(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    assert person() == f"alice@{socket.gethostname()}"

    def nameless() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert person() == f"{os.getuid()}@{socket.gethostname()}"

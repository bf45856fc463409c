from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from airflow_provider_backfill.engine import report
from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.report import Tally, chunk_line
from tests.unit.test_records import make_row

pytestmark = pytest.mark.unit

DAY = Interval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))


def rows(*statuses, **more):
    return [make_row(chunk_id=f"{index:06d}", status=status, **more) for index, status in enumerate(statuses)]


def test_the_lines_are_those_of_the_contract():
    assert chunk_line(1, 5, DAY, report.running("2fe712c1ca2c99a0")) == (
        "chunk 1/5 [2026-01-01T00:00:00+00:00 → 2026-01-02T00:00:00+00:00): running (run_id=2fe712c1ca2c99a0)"
    )
    assert chunk_line(1, 5, DAY, report.completed(1)) == (
        "chunk 1/5 [2026-01-01T00:00:00+00:00 → 2026-01-02T00:00:00+00:00): completed (1 records)"
    )
    assert chunk_line(2, 3, Interval(0, 1_000), report.completed(0)) == (
        "chunk 2/3 [0 → 1000): completed (0 records)"
    )


def test_the_tally_is_the_line_of_the_contract():
    done = rows(*["completed"] * 5)
    tally = Tally.of(done, ["000000", "000003", "000004"])
    assert str(tally) == "Backfill d7a7c6e21e0d8ecb: 3 completed, 2 skipped, 0 claimed elsewhere (5 chunks)"
    assert tally.covered
    assert tally.shortfall() == []


def test_a_tally_counts_each_chunk_once():
    some = [
        *rows("completed", "completed", "failed", "pending", "pending"),
        make_row(chunk_id="000005", status="running", lease_left=30.0),
        make_row(chunk_id="000006", status="claimed"),
        make_row(chunk_id="000007", status="running", lease_left=-1.0),
    ]
    tally = Tally.of(some, {"000001"})
    assert (tally.completed, tally.skipped, tally.claimed_elsewhere, tally.pending) == (1, 1, 2, 2)
    assert [row.chunk_id for row in tally.failed] == ["000002", "000007"]
    assert tally.total == 8
    assert (
        tally.completed + tally.skipped + tally.claimed_elsewhere + tally.pending + len(tally.failed)
        == tally.total
    )
    assert not tally.covered
    assert str(tally) == "Backfill d7a7c6e21e0d8ecb: 1 completed, 1 skipped, 2 claimed elsewhere (8 chunks)"


def test_what_this_run_loaded_counts_only_while_it_is_completed():
    """Somebody may have restated it since."""
    tally = Tally.of(rows("pending", "completed"), ["000000", "000001", "000009"])
    assert (tally.completed, tally.skipped, tally.pending) == (1, 0, 1)


def test_records_are_those_of_completed_chunks():
    some = rows("completed", "completed", "failed", "pending", records_loaded=7)
    some[1] = replace(some[1], records_loaded=None)
    assert Tally.of(some, []).records == 7


def test_what_is_missing_is_said_chunk_by_chunk_with_its_reason():
    some = rows("failed", "failed", "completed", "pending")
    some[0] = replace(some[0], error="ValueError: no")
    some.append(make_row(chunk_id="000004", status=ChunkStatus.RUNNING, lease_left=0.0))
    where = "[2026-01-03T00:00:00+00:00 → 2026-01-04T00:00:00+00:00)"
    assert Tally.of(some, []).shortfall() == [
        f"chunk 1/5 {where}: failed (ValueError: no)",
        f"chunk 2/5 {where}: failed (its lease ran out)",
        f"chunk 5/5 {where}: failed (its lease ran out)",
        "1 pending",
    ]


@pytest.mark.parametrize("status", ["pending", "failed", "running", "claimed"])
def test_one_chunk_that_is_not_completed_leaves_the_window_open(status):
    assert not Tally.of(rows("completed", status), ["000000"]).covered

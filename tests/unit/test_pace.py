from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_backfill.engine.pace import LATEST, Finished, pace, pace_of
from airflow_provider_backfill.engine.records import ChunkStatus
from tests.unit.test_records import make_row

pytestmark = pytest.mark.unit

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAY = 86_400.0


def ran(start: float, end: float, *, rows: int | None = 600, length: float = DAY) -> Finished:
    """An attempt, by seconds after noon."""
    return Finished(
        length=length,
        started=NOON + timedelta(seconds=start),
        completed=NOON + timedelta(seconds=end),
        rows=rows,
    )


def test_one_after_the_other():
    made = pace([ran(0, 30), ran(30, 60)], left=3 * DAY)
    assert (made.chunks, made.busy_seconds, made.chunks_per_minute) == (2, 60, 2)
    assert (made.rows_per_second, made.seconds_left) == (20, 90)
    assert str(made) == "2.0 chunks/min, 20 rows/s, about 90 s left"


def test_side_by_side_counts_as_often_as_they_are():
    assert pace([ran(0, 30), ran(0, 30)], left=2 * DAY).seconds_left == 30


def test_a_night_between_two_runs_is_left_out():
    assert pace([ran(0, 30), ran(50_000, 50_030)], left=DAY).seconds_left == 30


def test_what_is_left_goes_by_length():
    assert pace([ran(0, 30)], left=DAY / 3).seconds_left == pytest.approx(10)


def test_only_the_latest_count():
    slow = [ran(number * 100, number * 100 + 100) for number in range(LATEST)]
    fast = [ran(50_000 + number, 50_001 + number) for number in range(LATEST)]
    assert pace(fast + slow, left=DAY).seconds_left == 1


def test_rows_are_told_only_where_all_are_known():
    assert pace([ran(0, 30), ran(30, 60, rows=None)], left=0).rows_per_second is None


@pytest.mark.parametrize("finished", [[], [ran(5, 5)]])
def test_nothing_is_told_before_an_attempt_took_time(finished):
    assert pace(finished, left=DAY) is None


def test_of_a_backfills_rows():
    done = make_row(
        status="completed", records_loaded=100, started_at=NOON, completed_at=NOON + timedelta(seconds=10)
    )
    rows = [
        done,
        replace(done, covered_by="d7a7c6e21e0d8ecb", records_loaded=0),
        # Somebody said it is done.
        replace(done, started_at=None, records_loaded=None),
        replace(done, status=ChunkStatus.FAILED),
        replace(done, status=ChunkStatus.PENDING, started_at=None, completed_at=None),
    ]
    made = pace_of(rows)
    assert (made.chunks, made.rows_per_second, made.seconds_left) == (1, 10, 20)
    assert str(pace_of([done])) == "6.0 chunks/min, 10 rows/s"
    assert str(pace_of([replace(done, records_loaded=5)])) == "6.0 chunks/min, 0.5 rows/s"

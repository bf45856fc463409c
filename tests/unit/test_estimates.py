from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_backfill.engine.estimates import Measured, Spread, estimate
from airflow_provider_backfill.engine.window import ChunkSize, Interval, Window

pytestmark = pytest.mark.unit


def days(start: str, end: str, size: str = "1d", timezone: str = "UTC") -> tuple[Interval, ...]:
    return Window.parse(start, end, timezone).split(ChunkSize.parse(size))


def history(*seconds: float, rows: int | None = None, size: int | None = None) -> list[Measured]:
    """A day each."""
    chunks = days("2025-01-01", f"2025-01-{len(seconds) + 1:02d}")
    return [
        Measured(interval=chunk, seconds=each, rows=rows, size=size)
        for chunk, each in zip(chunks, seconds, strict=True)
    ]


def spread(median: float, high: float) -> Spread:
    return Spread(median=pytest.approx(median), high=pytest.approx(high))  # type: ignore[arg-type]


def test_median_and_ninetieth_percentile_a_chunk_and_in_all():
    known = history(*range(10, 120, 10), rows=1_000, size=2_000)
    made = estimate(days("2026-01-01", "2026-01-06"), known)
    assert (made.chunks, made.history) == (5, 11)
    assert made.chunk_seconds == spread(60, 100)
    assert made.seconds == spread(300, 500)
    assert made.chunk_rows == spread(1_000, 1_000)
    assert (made.rows, made.size) == (spread(5_000, 5_000), spread(10_000, 10_000))


def test_chunks_of_other_lengths_are_scaled():
    made = estimate(days("2026-01-01", "2026-01-02", "6h"), history(24, 24, rows=100))
    assert made.chunk_seconds == spread(6, 6)
    assert (made.seconds, made.rows) == (spread(24, 24), spread(100, 100))


def test_a_day_of_23_hours_has_23_parts_of_24():
    made = estimate(days("2026-03-29", "2026-03-30", timezone="Europe/Berlin"), history(24))
    assert made.seconds == spread(23, 23)


def test_whole_numbers_are_scaled_by_how_many_they_are():
    known = [Measured(interval=Interval(0, 1_000), seconds=10, rows=900)]
    made = estimate([Interval(1_000, 1_500), Interval(1_500, 1_700)], known)
    assert (made.seconds, made.rows) == (spread(7, 7), spread(630, 630))


def test_each_next_chunk_goes_to_whoever_is_free_first():
    # 3 of 10 s by two: the third waits for the first.
    assert estimate(days("2026-01-01", "2026-01-04"), history(10), concurrency=2).seconds == spread(20, 20)
    chunks = [*days("2026-01-01", "2026-01-04", "3d"), *days("2026-01-04", "2026-01-07")]
    assert estimate(chunks, history(10), concurrency=2).seconds == spread(30, 30)
    assert estimate(chunks, history(10), concurrency=1_000_000).seconds == spread(30, 30)


@pytest.mark.parametrize("known", [[], [Measured(interval=Interval(0, 10), seconds=1)]])
def test_without_history_of_its_kind_there_is_no_estimate(known):
    made = estimate(days("2026-01-01", "2026-01-06"), known, concurrency=4)
    assert (made.chunks, made.history, made.seconds, made.rows) == (5, 0, None, None)
    assert str(made) == "no history"


def test_what_is_not_known_of_any_chunk_is_left_out():
    made = estimate(days("2026-01-01", "2026-01-06"), history(30))
    assert (made.rows, made.chunk_rows, made.size) == (None, None, None)
    assert str(made) == "about 2 min; from 1 chunk"
    mixed = [*history(30), *history(30, rows=50)]
    assert estimate(days("2026-01-01", "2026-01-06"), mixed).rows == spread(250, 250)


@pytest.mark.parametrize(
    ("known", "chunks", "concurrency", "text"),
    [
        (history(*range(10, 120, 10), rows=17_280, size=620_000), ("2026-01-01", "2026-01-06"), 1,
         "about 5 min to 8 min; 86,400 rows; 3.1 MB; from 11 chunks"),
        (history(60, 60, rows=0, size=0), ("2026-01-01", "2026-01-09"), 4,
         "about 2 min, 4 at once; 0 rows; 0 B; from 2 chunks"),
        (history(60, 60, size=200 * 10**15), ("2026-01-01", "2026-01-11"), 1,
         "about 10 min; 2000.0 PB; from 2 chunks"),
    ],
)  # fmt: skip
def test_the_line_for_people(known, chunks, concurrency, text):
    assert str(estimate(days(*chunks), known, concurrency=concurrency)) == text


def test_nothing_to_run_takes_nothing():
    assert str(estimate([], history(10))) == "nothing to run"


def test_no_worker_is_refused():
    with pytest.raises(ValueError, match="concurrency 0 is less than 1"):
        estimate(days("2026-01-01", "2026-01-06"), history(10), concurrency=0)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=9),
    st.lists(st.integers(1, 50), min_size=1),
    st.integers(1, 9),
)
def test_workers_share_the_work(seconds, lengths, concurrency):
    chunks = [Interval(0, length) for length in lengths]
    known = [Measured(interval=Interval(0, 10), seconds=each) for each in seconds]
    alone, shared = (estimate(chunks, known, concurrency=workers).seconds for workers in (1, concurrency))
    assert alone.median == pytest.approx(statistics.median(seconds) / 10 * sum(lengths))
    assert alone.median <= alone.high * (1 + 1e-9)
    # No schedule beats an even share, or the longest chunk; this one loses at most the longest to it.
    share, longest = sum(lengths) / concurrency, max(lengths)
    pace = statistics.median(seconds) / 10
    assert shared.median >= pace * max(share, longest) * (1 - 1e-9)
    assert shared.median <= pace * (share + longest) * (1 + 1e-9)

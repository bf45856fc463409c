from __future__ import annotations

import itertools
import logging
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_backfill.engine import window as window_module
from airflow_provider_backfill.engine.timezones import first_instant, local_wall
from airflow_provider_backfill.engine.window import ChunkSize, Interval, Window, merge
from airflow_provider_backfill.exceptions import (
    ChunkSizeError,
    EmptyWindowError,
    TooManyChunksError,
    WindowError,
)
from tests.unit.strategies import sizes, utc, windows

pytestmark = pytest.mark.unit


def split(start, end, size, timezone="UTC", **limits) -> tuple[Interval, ...]:
    return Window.parse(start, end, timezone).split(ChunkSize.parse(size), **limits)


def local_starts(chunks, timezone) -> list[str]:
    return [chunk.start.astimezone(ZoneInfo(timezone)).isoformat() for chunk in chunks]


def hours(chunks) -> list[float]:
    return [(chunk.end - chunk.start) / timedelta(hours=1) for chunk in chunks]


# --- chunk sizes


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1d", "1d"),
        ("01d", "1d"),
        ("0000000000000000000000001d", "1d"),
        ("24h", "24h"),
        ("1w", "7d"),
        ("02w", "14d"),
        ("1mo", "1mo"),
        ("90m", "90m"),
        ("3600s", "3600s"),
        (" 6h\n", "6h"),
        ("006", "6"),
        (6, "6"),
        ("365250d", "365250d"),
    ],
)
def test_canonical_spelling(text, canonical):
    size = ChunkSize.parse(text)
    assert str(size) == canonical
    assert ChunkSize.parse(str(size)) == size
    assert ChunkSize.parse(size) is size


def test_days_and_months_are_calendar_steps():
    assert [ChunkSize.parse(text).calendar for text in ("1d", "1w", "1mo", "24h", "1m", "1s", "1")] == (
        [True] * 3 + [False] * 4
    )


@pytest.mark.parametrize(
    "value",
    [
        "99999999999d",
        "3000000d",
        "365251d",
        "1000000w",
        "99999999999999999999999h",
        "12001mo",
        "9" * 5_000 + "d",
        "٣d",
        "１d",
        "0d",
        "00h",
        "0",
        0,
        -1,
        "-1d",
        "+1d",
        "1.5h",
        "1 d",
        "1d12h",
        "1D",
        "1M",
        "1y",
        "P1D",
        "d",
        "",
        "1d\n1h",
        2**63,
        1.0,
        True,
        None,
        timedelta(days=1),
    ],
)
def test_other_chunk_sizes_are_one_line(value):
    with pytest.raises(ChunkSizeError) as error:
        ChunkSize.parse(value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@given(st.text(max_size=20) | st.from_regex(r"[0-9]{1,30}(s|m|h|d|w|mo)?", fullmatch=True))
def test_no_chunk_size_escapes_as_a_traceback(text):
    try:
        split("9999-01-01", "9999-12-31T23:59:59.999999Z", text)
    except WindowError as error:
        message = str(error)
    else:
        message = ""
    assert "\n" not in message


def test_the_size_must_be_of_the_windows_kind():
    with pytest.raises(ChunkSizeError, match="no unit"):
        split("2026-01-01", "2026-01-02", "6")
    with pytest.raises(ChunkSizeError, match="whole numbers"):
        split(0, 10, "1d")


# --- chunking, daylight saving


def test_three_days_are_three_contiguous_chunks():
    chunks = split("2022-01-01", "2022-01-04", "1d")
    assert [chunk.start for chunk in chunks] == [utc(2022, 1, day) for day in (1, 2, 3)]
    assert [chunk.end for chunk in chunks] == [utc(2022, 1, day) for day in (2, 3, 4)]
    row = Interval(utc(2022, 1, 2, 12), utc(2022, 1, 2, 12, 0, 1))
    assert [chunk.contains(row) for chunk in chunks] == [False, True, False]


def test_the_end_is_not_in_the_window():
    assert len(split("2024-01-01", "2024-01-03", "1d")) == 2
    with pytest.raises(EmptyWindowError):
        split("2024-01-01", "2024-01-01", "1d")


def test_the_last_chunk_is_clamped():
    chunks = split("2026-01-01T00:00Z", "2026-01-06T12:00Z", "1d")
    assert hours(chunks) == [24, 24, 24, 24, 24, 12]
    assert hours(split("2026-01-01", "2026-01-02", "7d")) == [24]


def test_new_york_by_hour_has_25_on_the_long_day():
    chunks = split("2024-11-03", "2024-11-04", "1h", "America/New_York")
    assert hours(chunks) == [1] * 25
    assert local_starts(chunks, "America/New_York")[1:3] == [
        "2024-11-03T01:00:00-04:00",
        "2024-11-03T01:00:00-05:00",
    ]


def test_new_york_by_day_follows_daylight_saving():
    chunks = split("2026-03-07", "2026-03-10", "1d", "America/New_York")
    assert local_starts(chunks, "America/New_York") == [
        "2026-03-07T00:00:00-05:00",
        "2026-03-08T00:00:00-05:00",
        "2026-03-09T00:00:00-04:00",
    ]
    assert hours(chunks) == [24, 23, 24]


def test_new_york_by_24_hours_does_not():
    chunks = split("2026-03-07", "2026-03-12", "24h", "America/New_York")
    assert local_starts(chunks, "America/New_York") == [
        "2026-03-07T00:00:00-05:00",
        "2026-03-08T00:00:00-05:00",
        "2026-03-09T01:00:00-04:00",
        "2026-03-10T01:00:00-04:00",
        "2026-03-11T01:00:00-04:00",
    ]
    assert hours(split("2026-03-07", "2026-03-10", "24h", "America/New_York")) == [24, 24, 23]


@pytest.mark.parametrize(
    ("zone", "start", "end", "expected"),
    [
        ("America/Sao_Paulo", "2018-11-03", "2018-11-06", [24, 23, 24]),
        ("Asia/Beirut", "2022-03-26", "2022-03-29", [24, 23, 24]),
        ("America/Havana", "2024-11-02", "2024-11-05", [24, 25, 24]),
        ("Pacific/Apia", "2011-12-28", "2012-01-02", [24, 24, 24, 24]),
        ("Australia/Lord_Howe", "2024-04-06", "2024-04-09", [24, 24.5, 24]),
    ],
)
def test_days_stay_whole_where_midnight_is_not_plain(zone, start, end, expected):
    assert hours(split(start, end, "1d", zone)) == expected


def test_a_step_into_a_gap_takes_the_end_of_the_gap():
    chunks = split("2026-03-07T02:30-05:00", "2026-03-10T02:30-04:00", "1d", "America/New_York")
    assert local_starts(chunks, "America/New_York") == [
        "2026-03-07T02:30:00-05:00",
        "2026-03-08T03:00:00-04:00",
        "2026-03-09T02:30:00-04:00",
    ]


def test_weeks_step_from_the_windows_start():
    chunks = split("2026-03-25", "2026-04-09", "1w", "Europe/Berlin")
    assert hours(chunks) == [7 * 24 - 1, 7 * 24, 24]


def test_months_keep_the_day_they_started_with():
    chunks = split("2024-01-31", "2024-07-01", "1mo", "Europe/Berlin")
    starts = [text[:10] for text in local_starts(chunks, "Europe/Berlin")]
    assert starts == ["2024-01-31", "2024-02-29", "2024-03-31", "2024-04-30", "2024-05-31", "2024-06-30"]
    quarters = split("2023-11-30", "2025-01-01", "3mo")
    assert [str(chunk.start)[:10] for chunk in quarters] == [
        "2023-11-30",
        "2024-02-29",
        "2024-05-30",
        "2024-08-30",
        "2024-11-30",
    ]


def test_the_end_of_all_dates_can_be_reached():
    for size in ("1d", "1mo", "24h"):
        chunks = split("9999-12-01", "9999-12-31T23:59:59.999999Z", size)
        assert chunks[-1].end == datetime.max.replace(tzinfo=UTC)


def test_whole_numbers():
    assert split(0, 1_000, 300) == (
        Interval(0, 300),
        Interval(300, 600),
        Interval(600, 900),
        Interval(900, 1_000),
    )
    assert split("-5", "5", "10") == (Interval(-5, 5),)
    assert str(split(0, 10, 10)[0]) == "0 → 10"
    assert Window.parse(0, 10, "Europe/Berlin") == Window.parse(0, 10)


# --- limits


@pytest.mark.parametrize(
    ("start", "end", "size", "zone", "count"),
    [
        ("2016-01-01", "2026-01-01", "1m", "UTC", 5_260_320),
        ("2016-01-01", "2026-01-01", "1s", "UTC", 315_619_200),
        ("2016-01-01", "2026-01-01T00:00:00.000001Z", "1s", "UTC", 315_619_201),
        ("1990-01-01", "2020-01-01", "1d", "Europe/Berlin", 10_957),
        ("1990-01-01", "2020-01-01", "1d", "Pacific/Apia", 10_956),
        ("0001-01-02", "9999-12-31", "1d", "Europe/Berlin", 3_652_057),
        (0, 2**63 - 1, 1, "UTC", 2**63 - 1),
    ],
)
def test_too_many_chunks_are_refused_at_once_with_the_count(start, end, size, zone, count):
    window = Window.parse(start, end, zone)
    began = time.perf_counter()
    with pytest.raises(TooManyChunksError) as error:
        window.split(ChunkSize.parse(size))
    assert time.perf_counter() - began < 1
    assert error.value.count == count
    assert f"{count} chunks" in str(error.value)


def test_limits_are_inclusive_and_may_be_moved(caplog):
    with caplog.at_level(logging.WARNING):
        assert len(split(0, 1_000, 1)) == 1_000
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert len(split(0, 1_001, 1)) == 1_001
    assert "1001 chunks, more than warn_chunks = 1000" in caplog.text
    assert len(split(0, 10_000, 1)) == 10_000
    with pytest.raises(TooManyChunksError):
        split(0, 10_001, 1)
    assert len(split(0, 10_001, 1, max_chunks=10_001)) == 10_001
    with pytest.raises(TooManyChunksError):
        split(0, 3, 1, max_chunks=2)


def test_a_count_by_bisection_is_what_a_walk_would_give(monkeypatch):
    window = Window.parse("1950-01-01", "2050-01-01", "America/New_York")
    for size in (ChunkSize.parse("1d"), ChunkSize.parse("5d"), ChunkSize.parse("1mo")):
        walked = window.count(size)
        with monkeypatch.context() as patch:
            patch.setattr(window_module, "_LONGEST_WALK", 0)
            assert window.count(size) == walked


# --- properties


@given(windows(), sizes)
@example(Window(start=utc(1867, 10, 17), end=utc(1867, 10, 20), timezone="America/Juneau"), ChunkSize(1, "d"))
@example(Window(start=utc(2011, 12, 29, 9), end=utc(2012, 1, 2), timezone="Pacific/Apia"), ChunkSize(1, "d"))
def test_chunks_cover_the_window_exactly(window, size):
    chunks = window.split(size)
    assert len(chunks) == window.count(size)
    assert chunks[0].start == window.start
    assert chunks[-1].end == window.end
    assert all(before.end == after.start for before, after in itertools.pairwise(chunks))
    assert merge(chunks) == (window.interval,)


@given(windows(), st.integers(1, 10))
def test_elapsed_chunks_have_one_length(window, count):
    chunks = window.split(ChunkSize(count, "h"))
    assert all(length == count for length in hours(chunks[:-1]))
    assert hours(chunks)[-1] <= count


@given(windows(), st.integers(1, 10))
def test_calendar_boundaries_are_the_first_instant_of_their_wall_time(window, count):
    anchor = local_wall(window.start, window.timezone)
    walls = {
        first_instant(anchor + number * timedelta(days=count), window.timezone) for number in range(1, 65)
    }
    inside = sorted(instant for instant in walls if window.start < instant < window.end)
    assert [chunk.start for chunk in window.split(ChunkSize(count, "d"))][1:] == inside

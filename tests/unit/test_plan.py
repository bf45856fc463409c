from __future__ import annotations

import logging
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given

from airflow_provider_backfill.engine.plan import (
    backfill_id,
    exact_length,
    interval_label,
    make_plan,
    run_id,
    size_key,
    source_key,
)
from airflow_provider_backfill.engine.window import ChunkSize, Interval, Window
from airflow_provider_backfill.exceptions import ChunkSizeError, TooManyChunksError
from tests.unit.strategies import sizes, windows

pytestmark = pytest.mark.unit


def plan(start, end, size, timezone="UTC", source="web_events", **limits):
    return make_plan(source, Window.parse(start, end, timezone), size, **limits)


# --- identity


@pytest.mark.parametrize(
    ("source", "start", "end", "size", "count", "identity", "first", "last"),
    [
        (
            "web_events",
            "2026-01-01T00:00:00Z",
            "2026-01-06T00:00:00Z",
            "1d",
            5,
            "d7a7c6e21e0d8ecb",
            "2fe712c1ca2c99a0",
            "2398048a9866e857",
        ),
        (
            "web_events",
            "2026-01-01T00:00:00Z",
            "2026-01-06T00:00:00Z",
            "24h",
            5,
            "17df65b5336d2ad6",
            "2fe712c1ca2c99a0",
            "2398048a9866e857",
        ),
        (
            "web_events",
            "2026-01-01T00:00Z",
            "2026-01-06T12:00Z",
            "01d",
            6,
            "1b9b03646bb2f132",
            "2fe712c1ca2c99a0",
            "c44996c673cc19ef",
        ),
        (
            "web_hours",
            "2026-01-01T00:00Z",
            "2026-01-01T05:00Z",
            "1h",
            5,
            "3938a0ea529b160e",
            "cc403c7dfdcf4d11",
            "1fedbf6599f095b2",
        ),
        (
            "web_events",
            "2026-01-01T00:00:00.123456+05:30",
            "2026-01-02T00:00:00Z",
            "7h",
            5,
            "ce5bccaf480df2be",
            "29ab02a26f959eb4",
            "3a696bbd6e16edea",
        ),
    ],
)
def test_identity_is_shared_with_dlt_ops(source, start, end, size, count, identity, first, last):
    made = plan(start, end, size, source=source)
    assert len(made.chunks) == count
    assert made.backfill_id == identity
    assert made.chunks[0].run_id == first
    assert made.chunks[-1].run_id == last


def test_the_third_chunk_of_the_demonstration():
    made = plan("2026-01-01T00:00:00Z", "2026-01-06T00:00:00Z", "1d")
    third = made.chunks[2]
    assert third.run_id == "559264ef1526bd83"
    assert third.run_id == run_id("web_events", third.interval)
    assert (third.index, third.number, third.chunk_id) == (2, 3, "000002")


def test_spellings_of_one_input_have_one_identity():
    same = {
        plan("2026-01-01", "2026-01-15", "7d", source="s").backfill_id,
        plan("2026-01-01T01:00+01:00", "2026-01-15T00:00:00.000Z", "01w", "Etc/UTC", source="s").backfill_id,
        plan("20260101T000000Z", "2026-01-14T24:00Z", "1w", "z", source="s").backfill_id,
    }
    assert len(same) == 1


def test_a_time_zone_joins_the_chunk_size():
    window = Window.parse("2026-01-01T00:00Z", "2026-01-06T00:00Z", "europe/berlin")
    assert size_key(window, ChunkSize.parse("1d")) == "1d@Europe/Berlin"
    assert size_key(window, ChunkSize.parse("24h")) == "24h@Europe/Berlin"
    made = make_plan("web_events", window, "1d")
    assert made.chunk_size == "1d@Europe/Berlin"
    assert made.backfill_id != "d7a7c6e21e0d8ecb"
    assert made.chunks[2].run_id == "559264ef1526bd83"


def test_resources_join_the_source():
    assert source_key("web_events") == "web_events"
    assert source_key("web_events", []) == "web_events"
    assert source_key("web_events", ["views", "clicks", "views"]) == "web_events:clicks,views"
    made = plan("2026-01-01", "2026-01-02", "1d", source="web_events:clicks,views")
    assert (made.source_name, made.resources) == ("web_events", ("clicks", "views"))
    assert plan("2026-01-01", "2026-01-02", "1d").resources == ()


def test_whole_numbers_have_identity_too():
    made = plan(0, 1_000, 300)
    assert [chunk.interval for chunk in made.chunks][-1] == Interval(900, 1_000)
    assert made.chunk_size == "300"
    assert made.backfill_id == plan("0", "1000", "0300", "Europe/Berlin").backfill_id
    assert len({chunk.run_id for chunk in made.chunks}) == 4


def test_new_york_has_25_hours_with_25_ids():
    made = plan("2024-11-03", "2024-11-04", "1h", "America/New_York")
    assert len({chunk.run_id for chunk in made.chunks}) == 25
    assert len({made.label(chunk.interval) for chunk in made.chunks}) == 25


@given(windows(), sizes)
def test_ids_and_labels_are_distinct(window, size):
    made = make_plan("web_events", window, size)
    assert made.backfill_id == backfill_id("web_events", window, size)
    assert [chunk.index for chunk in made.chunks] == list(range(len(made.chunks)))
    for distinct in (
        {chunk.run_id for chunk in made.chunks},
        {chunk.chunk_id for chunk in made.chunks},
        {made.label(chunk.interval) for chunk in made.chunks},
    ):
        assert len(distinct) == len(made.chunks)


def test_plans_do_not_change():
    made = plan("2026-01-01", "2026-01-06", "1d")
    assert made == plan("2026-01-01", "2026-01-06", "1d")
    with pytest.raises(FrozenInstanceError):
        made.chunks = ()


# --- limits


def test_a_long_plan_warns_once_and_keeps_the_warning(caplog):
    with caplog.at_level(logging.WARNING):
        made = plan("2020-01-01", "2024-01-01", "1d")
    assert made.warning == (
        "this window is cut into 1461 chunks, more than warn_chunks = 1000; "
        "a larger chunk spends less on each chunk's fixed costs"
    )
    assert [record.getMessage() for record in caplog.records] == [made.warning]
    assert plan("2020-01-01", "2024-01-01", "1d", warn_chunks=1_461).warning is None


def test_a_plan_that_is_too_long_or_has_no_size_is_refused():
    with pytest.raises(TooManyChunksError, match="5260320"):
        plan("2016-01-01", "2026-01-01", "1m")
    with pytest.raises(TooManyChunksError, match="max_chunks = 4"):
        plan("2026-01-01", "2026-01-06", "1d", max_chunks=4)
    for size in ("99999999999d", "3000000d", "٣d"):
        with pytest.raises(ChunkSizeError):
            plan("2026-01-01", "2026-01-06", size)


# --- labels


@pytest.mark.parametrize(
    ("start", "end", "timezone", "label"),
    [
        ("2026-01-03", "2026-01-04", "UTC", "2026-01-03 → 2026-01-04"),
        ("2026-01-03", "2026-01-04", "Europe/Berlin", "2026-01-03 → 2026-01-04"),
        ("2026-01-03T06:00Z", "2026-01-03T12:00Z", "UTC", "2026-01-03T06:00 → 2026-01-03T12:00"),
        ("2026-01-03T00:00Z", "2026-01-03T12:00Z", "UTC", "2026-01-03T00:00 → 2026-01-03T12:00"),
        ("2026-01-03T06:00Z", "2026-01-03T12:00Z", "Europe/Berlin", "2026-01-03T07:00 → 2026-01-03T13:00"),
        ("2026-01-03T06:00:30Z", "2026-01-03T12:00Z", "UTC", "2026-01-03T06:00:30 → 2026-01-03T12:00"),
        ("2018-11-04", "2018-11-05", "America/Sao_Paulo", "2018-11-04 → 2018-11-05"),
        (
            "2024-11-03T05:00Z",
            "2024-11-03T06:00Z",
            "America/New_York",
            "2024-11-03T01:00-04:00 → 2024-11-03T01:00-05:00",
        ),
        (0, 1_000, "UTC", "0 → 1000"),
    ],
)
def test_labels(start, end, timezone, label):
    assert interval_label(Window.parse(start, end, timezone).interval, timezone) == label


@pytest.mark.parametrize(
    ("start", "end", "timezone", "length"),
    [
        ("2026-01-01", "2026-01-02", "UTC", "1d"),
        ("2026-01-01T06:00Z", "2026-01-02T06:00Z", "UTC", "1d"),
        ("2026-01-01", "2026-02-01", "UTC", "31d"),
        ("2026-01-01T06:00Z", "2026-01-01T12:00Z", "UTC", "6h"),
        ("2026-01-01T06:00Z", "2026-01-02T07:00Z", "UTC", "25h"),
        ("2026-01-01T06:00Z", "2026-01-01T07:30Z", "UTC", "90m"),
        ("2026-01-01T06:00:00Z", "2026-01-01T06:00:45Z", "UTC", "45s"),
        ("2026-01-01T06:00:00Z", "2026-01-01T06:00:44.5Z", "UTC", "45s"),
        ("2026-03-08", "2026-03-09", "America/New_York", "1d"),  # 23 hours
        ("2026-03-08T05:00Z", "2026-03-09T05:00Z", "America/New_York", "24h"),
        ("2018-11-04", "2018-11-05", "America/Sao_Paulo", "23h"),  # from 01:00, where the day starts
        (10, 110, "UTC", "100"),
    ],
)
def test_exact_length(start, end, timezone, length):
    assert exact_length(Window.parse(start, end, timezone).interval, timezone) == length


@given(windows())
def test_a_window_of_its_exact_length_is_one_chunk(window):
    made = make_plan("web_events", window, exact_length(window.interval, window.timezone))
    assert [chunk.interval for chunk in made.chunks] == [window.interval]

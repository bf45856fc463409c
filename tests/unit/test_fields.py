"""Fields in a source's arguments (pure)."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from airflow_provider_backfill.engine.fields import NAMES, ChunkFields, mentioned
from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.exceptions import ChunkFieldError

pytestmark = pytest.mark.unit

START, END = datetime(2026, 1, 2, 23, tzinfo=UTC), datetime(2026, 1, 4, 23, tzinfo=UTC)
BERLIN = ChunkFields(interval=Interval(START, END), run_id="2fe712c1ca2c99a0", timezone="Europe/Berlin")
NUMBERS = ChunkFields(interval=Interval(5, 9), run_id="2fe712c1ca2c99a0")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{chunk.start}", START),
        ("{chunk.end}", END),
        ("{chunk.start_date}", date(2026, 1, 3)),
        ("{chunk.end_date}", date(2026, 1, 5)),
        ("{chunk.last_date}", date(2026, 1, 4)),
        ("{chunk.start_epoch}", 1_767_394_800),
        ("{chunk.end_epoch_ms}", 1_767_567_600_000),
        ("{chunk.start_epoch_us}", 1_767_394_800_000_000),
        ("{chunk.start_epoch_ns}", 1_767_394_800_000_000_000),
        ("{chunk.id}", "2fe712c1ca2c99a0"),
        (
            "since {chunk.start} until {chunk.end}",
            "since 2026-01-02T23:00:00+00:00 until 2026-01-04T23:00:00+00:00",
        ),
        ("{chunk.start_date}/{chunk.last_date}.csv", "2026-01-03/2026-01-04.csv"),
        ("{chunk.start:%Y/%m/%d %H:%M}", "2026/01/02 23:00"),
        ("{chunk.start_epoch:>12}", "  1767394800"),
        ("{}{chunk}{other.start}{{x}}", "{}{chunk}{other.start}{{x}}"),
        (["{chunk.start_date}", {"to": "{chunk.end_date}"}], [date(2026, 1, 3), {"to": date(2026, 1, 5)}]),
        (7, 7),
    ],
)
def test_fields_are_filled(text, expected):
    assert BERLIN.fill({"value": text}) == {"value": expected}


def test_whole_numbers_have_bounds_alone():
    assert NUMBERS.fill({"low": "{chunk.start}", "text": "id < {chunk.end}"}) == {"low": 5, "text": "id < 9"}
    with pytest.raises(ChunkFieldError, match=r"'\{chunk.start_epoch\}' .* the window is of whole numbers"):
        NUMBERS.fill({"since": "{chunk.start_epoch}"})


def test_unknown_fields_are_refused_with_the_known_ones():
    with pytest.raises(
        ChunkFieldError, match=r"'\{chunk.strat\}' of .* is unknown; pass one of chunk.start, .*id"
    ):
        BERLIN.fill({"since": "{chunk.strat}"})


def test_bounds_that_are_no_days_have_no_dates():
    half = ChunkFields(interval=Interval(START, END), run_id="a")
    with pytest.raises(ChunkFieldError, match="not the start of a day in UTC"):
        half.fill({"since": "{chunk.start_date}"})


def test_a_format_that_is_none_is_refused():
    with pytest.raises(ChunkFieldError, match="has no such format"):
        BERLIN.fill({"since": "{chunk.start_epoch:%Y}"})


@pytest.mark.parametrize("name", [name for name in NAMES if name != "id"])
def test_a_source_is_bounded_by_any_field_but_the_id(name):
    assert mentioned({"query": [f"x {{chunk.{name}}}"]})
    assert not mentioned({"query": "{chunk.id}", "other": 5})

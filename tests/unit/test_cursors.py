"""A chunk's bounds as a cursor has them (pure)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_backfill.engine.cursors import CursorFormat
from airflow_provider_backfill.exceptions import CursorFormatError, TimezoneError

pytestmark = pytest.mark.unit

NOON = datetime(2026, 1, 2, 12, 30, 15, tzinfo=UTC)
MIDNIGHT = datetime(2026, 1, 2, tzinfo=UTC)
#: 2026-01-02T00:00 in Berlin.
BERLIN_MIDNIGHT = datetime(2026, 1, 1, 23, tzinfo=UTC)


def bound(form, instant, timezone="UTC"):
    return CursorFormat.parse(form).bound(instant, timezone)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("datetime", NOON),
        ("naive", NOON.replace(tzinfo=None)),
        ("naive@Europe/Berlin", datetime(2026, 1, 2, 13, 30, 15)),  # noqa: DTZ001
        ("naive@europe/berlin", datetime(2026, 1, 2, 13, 30, 15)),  # noqa: DTZ001
        ("epoch_s", 1_767_357_015),
        ("epoch_ms", 1_767_357_015_000),
        ("epoch_us", 1_767_357_015_000_000),
        ("epoch_ns", 1_767_357_015_000_000_000),
        ("%Y-%m-%dT%H:%M:%SZ", "2026-01-02T12:30:15Z"),
        ("%FT%TZ", "2026-01-02T12:30:15Z"),
        ("%Y-%m-%d %H:%M:%S", "2026-01-02 12:30:15"),
        ("%Y-%m-%d %H:%M:%S@Europe/Berlin", "2026-01-02 13:30:15"),
        ("%Y-%m-%dT%H:%M:%S.%3fZ", "2026-01-02T12:30:15.000Z"),
        ("%Y-%m-%dT%H:%M:%S.%f+00:00", "2026-01-02T12:30:15.000000+00:00"),
        ("%Y%m%d%H%M%S", "20260102123015"),
        ("%%%Y%m%d%H%M%S", "%20260102123015"),
    ],
)
def test_bounds_of_times(form, expected):
    given_bound = bound(form, NOON)
    assert given_bound == expected
    assert type(given_bound) is type(expected)
    assert getattr(given_bound, "tzinfo", None) == getattr(expected, "tzinfo", None)


def test_dates_are_those_of_the_window():
    assert bound("date", MIDNIGHT) == date(2026, 1, 2)
    assert bound("date", BERLIN_MIDNIGHT, "Europe/Berlin") == date(2026, 1, 2)


def test_a_day_without_midnight_starts_where_the_gap_ends():
    # Clocks in Havana went from 2026-03-08T00:00 to 01:00.
    start = datetime(2026, 3, 8, 1, tzinfo=ZoneInfo("America/Havana")).astimezone(UTC)
    assert bound("date", start, "America/Havana") == date(2026, 3, 8)


def test_ids_are_themselves():
    assert bound("id", 0) == 0
    assert bound("id", -(10**15)) == -(10**15)


@pytest.mark.parametrize(
    ("form", "instant", "timezone", "message"),
    [
        ("date", NOON, "UTC", "not the start of a day in UTC; let start and end be dates"),
        ("date", MIDNIGHT, "Europe/Berlin", "not the start of a day in Europe/Berlin"),
        ("epoch_s", NOON + timedelta(milliseconds=5), "UTC", "has whole seconds"),
        ("epoch_ms", NOON + timedelta(microseconds=5), "UTC", "has whole milliseconds"),
        ("%Y-%m-%dT%H:%MZ", NOON, "UTC", "has whole minutes"),
        ("%Y-%m-%dT%H", NOON, "UTC", "has whole hours"),
        ("%Y-%m-%d", NOON, "UTC", "has whole days"),
        ("%Y-%m-%d@Europe/Berlin", MIDNIGHT, "UTC", "has whole days"),
        ("%Y-%m-%dT%H:%M:%S.%3fZ", NOON + timedelta(microseconds=5), "UTC", "has whole milliseconds"),
        ("id", NOON, "UTC", "is of whole numbers, and the window is of times"),
        ("epoch_s", 5, "UTC", "is of times, and the window is of whole numbers"),
    ],
)
def test_bounds_that_a_format_cannot_say_are_refused(form, instant, timezone, message):
    with pytest.raises(CursorFormatError, match=message) as caught:
        bound(form, instant, timezone)
    assert str(caught.value).startswith(f"cursor format {form!r} ")


@pytest.mark.parametrize("hour", [0, 1])
@pytest.mark.parametrize("form", ["naive@Europe/Berlin", "%Y-%m-%d %H:%M:%S@Europe/Berlin"])
def test_a_bound_in_the_hour_that_clocks_repeat_is_refused(form, hour):
    with pytest.raises(CursorFormatError, match="clocks in Europe/Berlin show that time twice"):
        bound(form, datetime(2026, 10, 25, hour, 30, tzinfo=UTC))


@pytest.mark.parametrize(
    "form",
    [
        "%d.%m.%Y",
        "%m/%d/%Y %H:%M",
        "%Y-%d-%m",
        "%Y-%m-%d %I:%M %p",
        "%y-%m-%d",
        "%Y-%m-%d %H:%S",
        "%Y-%j",
        "%Y",
        "%",
        "%Y-%m-%d %",
        "%H:%M:%S",
    ],
)
def test_shapes_that_do_not_sort_are_refused(form):
    with pytest.raises(CursorFormatError, match=r"do not sort as times do; let it go from the year down"):
        CursorFormat.parse(form)


def test_an_offset_is_to_be_written_as_it_stands():
    with pytest.raises(CursorFormatError, match="write the offset as it stands"):
        CursorFormat.parse("%Y-%m-%dT%H:%M:%S%z")


@pytest.mark.parametrize("form", ["", "epoch", "EPOCH_S", "timestamp", "date@Europe/Berlin", "epoch_s@UTC"])
def test_unknown_formats_are_refused_with_the_known_ones(form):
    with pytest.raises(CursorFormatError, match=r"is unknown; pass datetime, naive, .*epoch_s.*or the shape"):
        CursorFormat.parse(form)


def test_a_format_that_is_no_text_is_refused():
    with pytest.raises(CursorFormatError, match="is of type int, and no text"):
        CursorFormat.parse(1)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", ["naive@Nowhere", "%Y-%m-%d@Nowhere"])
def test_an_unknown_zone_is_refused(form):
    with pytest.raises(TimezoneError):
        CursorFormat.parse(form)


@pytest.mark.parametrize("end", ["Z", "+00:00", "-0000"])
def test_a_shape_that_says_utc_takes_no_other_zone(end):
    with pytest.raises(CursorFormatError, match="says UTC at its end and Europe/Berlin behind the @"):
        CursorFormat.parse(f"%Y-%m-%dT%H:%M:%S{end}@Europe/Berlin")


instants = st.datetimes(
    min_value=datetime(1, 1, 3),  # noqa: DTZ001
    max_value=datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=st.just(UTC),
)


@given(first=instants, second=instants)
@pytest.mark.parametrize("form", ["naive", "epoch_us", "epoch_ns", "%Y-%m-%dT%H:%M:%S.%fZ", "%Y%m%d%H%M%S%f"])
def test_bounds_sort_as_their_times_do(form, first, second):
    assert (bound(form, first) < bound(form, second)) == (first < second)


@given(moment=instants, seconds=st.integers(min_value=0, max_value=200_000))
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"])
def test_what_clocks_show_between_two_bounds_lies_between_them(zone, moment, seconds):
    """No row is lost or read twice, though clocks go back."""
    try:
        low = bound(f"naive@{zone}", moment)
    except CursorFormatError:
        return
    later = (moment + timedelta(seconds=seconds)).astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
    assert later >= low


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("datetime", datetime(2026, 3, 29, tzinfo=UTC)),
        ("datetime", datetime(2026, 3, 29)),  # noqa: DTZ001
        ("naive", datetime(2026, 3, 29)),  # noqa: DTZ001
        ("naive@Europe/Berlin", datetime(2026, 3, 29, 1)),  # noqa: DTZ001
        ("naive@Europe/Berlin", datetime(2026, 3, 29, tzinfo=UTC)),
        ("date", datetime(2026, 3, 29).date()),  # noqa: DTZ001
        ("epoch_s", 1_774_742_400),
        ("epoch_ms", 1_774_742_400_000),
        ("epoch_us", 1_774_742_400_000_000),
        ("epoch_ns", 1_774_742_400_000_000_000),
        ("%Y-%m-%dT%H:%M:%SZ", "2026-03-29T00:00:00Z"),
        ("%F %H:%M:%S.%3f@Europe/Berlin", "2026-03-29 01:00:00.000"),
    ],
)
def test_what_an_author_wrote_is_read_as_a_bound(text, value):
    assert CursorFormat.parse(text).restored(value, "UTC") == datetime(2026, 3, 29, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("datetime", "2026-03-29"),
        ("date", 7),
        ("epoch_s", "7"),
        ("epoch_s", True),
        ("id", "7"),
        ("%Y-%m-%d", "yesterday"),
        ("%Y-%m-%d", datetime(2026, 3, 29, tzinfo=UTC)),
        ("naive", None),
    ],
)
def test_what_is_of_another_format_is_no_bound(text, value):
    assert CursorFormat.parse(text).restored(value, "UTC") is None


def test_an_id_and_a_day_of_the_zone_are_bounds():
    assert CursorFormat.parse("id").restored(7, "UTC") == 7
    day = CursorFormat.parse("date").restored(datetime(2026, 3, 29).date(), "Europe/Berlin")  # noqa: DTZ001
    assert day == datetime(2026, 3, 28, 23, tzinfo=UTC)

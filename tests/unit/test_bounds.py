from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pendulum
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_backfill.engine.timezones import first_instant, local_wall
from airflow_provider_backfill.engine.window import Interval, Window
from airflow_provider_backfill.exceptions import (
    BoundFormatError,
    EmptyWindowError,
    NaiveBoundError,
    TimezoneError,
    WindowError,
)
from tests.unit.strategies import ZONES, instants, utc

pytestmark = pytest.mark.unit

# --- bounds


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T05:30:00Z",
        "2026-01-01T05:30Z",
        "2026-01-01t05:30:00z",
        "2026-01-01 05:30:00+00:00",
        "  2026-01-01T05:30:00Z\n",
        "2026-01-01T11:00:00+05:30",
        "2026-01-01T11:00+0530",
        "2025-12-31T23:30:00-06",
        "2026-01-01T05:30:00.000000000Z",
        "2026-01-01T05:30:00,0Z",
        "20260101T053000Z",
        "20260101T053000+0000",
    ],
)
def test_iso_text_with_an_offset_becomes_utc(text):
    assert Window.parse(text, "2027-01-01").start == utc(2026, 1, 1, 5, 30)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 1, 1, 6, 30, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2026, 1, 1, 6, 30, tzinfo=timezone(timedelta(hours=1))),
        pendulum.datetime(2026, 1, 1, 6, 30, tz="Europe/Berlin"),
    ],
)
def test_aware_datetimes_become_plain_utc(value):
    start = Window.parse(value, "2027-01-01").start
    assert start == utc(2026, 1, 1, 5, 30)
    assert type(start) is datetime
    assert start.tzinfo is UTC


def test_the_midnight_that_ends_a_day_may_be_written_as_24():
    assert Window.parse("2026-01-01T24:00Z", "2027-01-01").start == utc(2026, 1, 2)


def test_a_repeated_hour_is_told_apart_by_fold():
    new_york = ZoneInfo("America/New_York")
    first = datetime(2024, 11, 3, 1, 30, tzinfo=new_york)
    window = Window.parse(first, first.replace(fold=1))
    assert window.interval == Interval(utc(2024, 11, 3, 5, 30), utc(2024, 11, 3, 6, 30))


@pytest.mark.parametrize("value", ["2026-01-01", date(2026, 1, 1)])
def test_a_date_is_midnight_in_the_time_zone(value):
    assert Window.parse(value, "2026-02-01").start == utc(2026, 1, 1)
    assert Window.parse(value, "2026-02-01", "Europe/Berlin").start == utc(2025, 12, 31, 23)
    assert Window.parse(value, "2026-02-01", "America/New_York").start == utc(2026, 1, 1, 5)


@pytest.mark.parametrize(
    ("day", "zone", "instant"),
    [
        ("2018-11-04", "America/Sao_Paulo", utc(2018, 11, 4, 3)),  # 01:00 local, 00:00 is skipped
        ("2022-03-27", "Asia/Beirut", utc(2022, 3, 26, 22)),
        ("2024-11-03", "America/Havana", utc(2024, 11, 3, 4)),  # the first of two midnights
        ("2011-12-30", "Pacific/Apia", utc(2011, 12, 30, 10)),  # the day is skipped: the next one's midnight
    ],
)
def test_a_date_whose_midnight_is_not_plain_starts_at_its_first_instant(day, zone, instant):
    assert Window.parse(day, "2030-01-01", zone).start == instant


def test_naive_text_is_refused_word_for_word():
    with pytest.raises(NaiveBoundError) as start:
        Window.parse("2026-01-01T00:00:00", "2026-01-02")
    assert str(start.value) == (
        "start '2026-01-01T00:00:00' is timezone-naive; pass an explicit offset (e.g. 2026-01-01T00:00:00Z)"
        " (see docs/refusals.md#naivebounderror)"
    )
    with pytest.raises(NaiveBoundError) as end:
        Window.parse("2026-01-01", "2026-01-02 12:30")
    assert str(end.value) == (
        "end '2026-01-02 12:30' is timezone-naive; pass an explicit offset (e.g. 2026-01-02T12:30:00Z)"
        " (see docs/refusals.md#naivebounderror)"
    )


def test_a_naive_datetime_is_refused_with_the_same_words():
    with pytest.raises(NaiveBoundError) as error:
        Window.parse(datetime(2026, 1, 1), "2026-01-02")  # noqa: DTZ001
    assert str(error.value) == (
        "start '2026-01-01T00:00:00' is timezone-naive; pass an explicit offset (e.g. 2026-01-01T00:00:00Z)"
        " (see docs/refusals.md#naivebounderror)"
    )


@pytest.mark.parametrize(
    "value",
    [
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        "9999-12-31T24:00:00Z",
        "٢٠٢٦-٠١-٠١",
        "٢٠٢٦",
        "2026-13-01",
        "2026-02-30T00:00:00Z",
        "2026-01-01T25:00:00Z",
        "2026-01-01T24:30:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+01:60",
        "2026-01-01T00:00:00.1234567Z",
        "2026-01-01+00:00",
        "2026-01-01T00:00Z[Europe/Berlin]",
        "2026-W01-1",
        "01/02/2026",
        "yesterday",
        "None",
        "",
        "9" * 5_000,
        "1.5",
        2**63,
        1.5,
        True,
        None,
        timedelta(days=1),
    ],
)
def test_anything_else_is_one_line(value):
    with pytest.raises(BoundFormatError) as error:
        Window.parse(value, "9999-01-01")
    assert error.value.bound == "start"
    assert str(error.value).startswith("start ")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


iso_like = st.from_regex(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}([+-][0-9]{2}:[0-9]{2}|Z)?", fullmatch=True
)


@given(st.text(max_size=30) | iso_like)
@example("0001-01-01T00:00+23:59")
def test_no_text_escapes_as_a_traceback(text):
    try:
        Window.parse(text, "9999-12-31")
    except WindowError as error:
        message = str(error)
    else:
        message = ""
    assert "\n" not in message


@given(st.datetimes(timezones=st.timezones(), min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)))  # noqa: DTZ001
def test_isoformat_reads_back_as_the_same_instant(value):
    assert Window.parse(value.isoformat(), "9999-12-31").start == value.astimezone(UTC)


def test_bounds_outside_the_zones_calendar_are_refused():
    with pytest.raises(BoundFormatError, match="outside the years 1 to 9999 in America/New_York"):
        Window.parse("0001-01-01T00:00:00Z", "2026-01-01", "America/New_York")
    with pytest.raises(BoundFormatError, match="start '0001-01-01' is outside the years"):
        Window.parse("0001-01-01", "2026-01-01", "Asia/Tokyo")


# --- windows


@pytest.mark.parametrize(
    ("start", "end"), [("2026-01-01", "2026-01-01"), ("2026-01-02", "2026-01-01"), (5, 5)]
)
def test_empty_windows_are_refused(start, end):
    with pytest.raises(EmptyWindowError, match="empty window"):
        Window.parse(start, end)


def test_an_empty_data_interval_names_the_timetable():
    """A cron string on Airflow 3: start = end."""
    month = utc(2024, 2, 1)
    with pytest.raises(EmptyWindowError, match=r"empty window.*CronDataIntervalTimetable"):
        Window.parse(month, month, from_data_interval=True)
    assert Window.parse(month, utc(2024, 3, 1), from_data_interval=True).start == month


@pytest.mark.parametrize(("start", "end"), [(0, "2026-01-01"), ("2026-01-01", "10"), (0, utc(2026, 1, 1))])
def test_times_and_whole_numbers_do_not_mix(start, end):
    with pytest.raises(BoundFormatError, match=r"two times .* or two whole numbers"):
        Window.parse(start, end)


@pytest.mark.parametrize(
    "name", ["UTC", "utc", "Z", "z", "Etc/UTC", "etc/utc", "Zulu", "GMT", "Etc/GMT", UTC]
)
def test_names_of_utc_are_one(name):
    assert Window.parse("2026-01-01", "2026-01-02", name).timezone == "UTC"


@pytest.mark.parametrize(
    "name",
    ["Europe/Berlin", "europe/berlin", ZoneInfo("Europe/Berlin"), pendulum.timezone("Europe/Berlin")],
)
def test_a_zone_has_one_spelling(name):
    assert Window.parse("2026-01-01", "2026-01-02", name).timezone == "Europe/Berlin"


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("+02:00", None),
        ("../../etc/passwd", None),
        ("localtime", None),
        ("", None),
        (None, None),
    ],
)
def test_unknown_zones_name_close_ones(name, match):
    with pytest.raises(TimezoneError) as error:
        Window.parse("2026-01-01", "2026-01-02", name)
    assert "\n" not in str(error.value)
    if match:
        assert match in error.value.matches
        assert match in str(error.value)


def test_windows_and_intervals_are_values():
    window = Window.parse("2026-01-01", "2026-01-02", "Europe/Berlin")
    assert window == pickle.loads(pickle.dumps(window))
    assert hash(window) == hash(Window(start=window.start, end=window.end, timezone="europe/berlin"))
    assert str(window.interval) == "2025-12-31T23:00:00+00:00 → 2026-01-01T23:00:00+00:00"


# --- time zones


@given(instants, st.sampled_from(ZONES))
def test_the_first_instant_is_the_first(instant, zone):
    wall = local_wall(instant, zone) + timedelta(hours=1)
    found = first_instant(wall, zone)
    assert local_wall(found, zone) >= wall
    assert local_wall(found - timedelta(microseconds=1), zone) < wall


# --- imports


def test_importing_the_pure_part_loads_nothing_heavy():
    code = (
        "import sys, airflow_provider_backfill.engine.plan; "
        "print({'airflow', 'dlt', 'pendulum', 'duckdb', 'psycopg2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

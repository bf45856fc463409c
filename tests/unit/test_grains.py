from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_backfill.engine.bounds import parse_bound
from airflow_provider_backfill.engine.grains import Grain, align
from airflow_provider_backfill.engine.timezones import local_wall
from airflow_provider_backfill.exceptions import BoundFormatError
from tests.unit.strategies import ZONES, instants, utc

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("grain", "timezone", "instant", "down", "up"),
    [
        ("hour", "UTC", "2026-01-01T10:20:30Z", "2026-01-01T10:00Z", "2026-01-01T11:00Z"),
        ("hour", "UTC", "2026-01-01T10:00Z", "2026-01-01T10:00Z", "2026-01-01T10:00Z"),
        ("hour", "Asia/Kathmandu", "2026-01-01T10:20Z", "2026-01-01T10:15Z", "2026-01-01T11:15Z"),
        # The hour that clocks show twice.
        (
            "hour",
            "Europe/Berlin",
            "2026-10-25T02:30+02:00",
            "2026-10-25T02:00+02:00",
            "2026-10-25T02:00+01:00",
        ),
        (
            "hour",
            "Europe/Berlin",
            "2026-10-25T02:30+01:00",
            "2026-10-25T02:00+01:00",
            "2026-10-25T03:00+01:00",
        ),
        # Clocks go back by half an hour at 02:00, and the last elapsed hour of the day is half a one.
        (
            "hour",
            "Australia/Lord_Howe",
            "2026-04-05T01:45+10:30",
            "2026-04-05T01:30+10:30",
            "2026-04-05T02:30+10:30",
        ),
        ("hour", "Australia/Lord_Howe", "2026-04-05T23:45+10:30", "2026-04-05T23:30+10:30", "2026-04-06"),
        ("day", "UTC", "2026-01-01T00:00:00.000001Z", "2026-01-01", "2026-01-02"),
        ("day", "Europe/Berlin", "2026-03-29T12:00Z", "2026-03-29", "2026-03-30"),
        ("day", "Europe/Berlin", "2026-03-28T23:00Z", "2026-03-29", "2026-03-29"),
        # Midnight is skipped, is shown twice.
        ("day", "America/Sao_Paulo", "2018-11-04T05:00Z", "2018-11-04T03:00Z", "2018-11-05"),
        ("day", "America/Havana", "2026-11-01T00:30-05:00", "2026-11-01T00:00-04:00", "2026-11-02"),
        # The 30th was skipped; the 18th was lived twice, and the 19th begun in between.
        ("day", "Pacific/Apia", "2011-12-29T12:00-10:00", "2011-12-29", "2011-12-31"),
        ("day", "America/Juneau", "1867-10-18T20:00-08:57:41", "1867-10-19", "1867-10-20"),
        ("week", "UTC", "2026-01-01T10:00Z", "2025-12-29", "2026-01-05"),
        ("week", "UTC", "2026-01-05", "2026-01-05", "2026-01-05"),
        ("week", "America/New_York", "2026-01-05T03:00Z", "2025-12-29", "2026-01-05"),
        ("month", "UTC", "2026-02-28T23:59Z", "2026-02-01", "2026-03-01"),
        ("month", "UTC", "2026-12-31T23:59Z", "2026-12-01", "2027-01-01"),
        ("month", "Europe/Berlin", "2026-03-31T22:30Z", "2026-04-01", "2026-05-01"),
    ],
)
def test_bounds_around_an_instant(grain, timezone, instant, down, up):
    given, *expected = (parse_bound(each, "start", timezone) for each in (instant, down, up))
    assert [align(given, Grain(grain), timezone, up=up) for up in (False, True)] == expected


@given(instants, instants, st.sampled_from(Grain), st.sampled_from(ZONES))
def test_bounds_are_those_nearest(instant, other, grain, timezone):
    down, up = (align(instant, grain, timezone, up=up) for up in (False, True))
    assert down <= instant <= up
    assert (down == instant) == (up == instant)
    for bound in (down, up):
        assert align(bound, grain, timezone) == align(bound, grain, timezone, up=True) == bound
    # Whatever lies between has the same bounds.
    between = down + (up - down) * ((other - utc(1850, 1, 1)) / (utc(2100, 1, 1) - utc(1850, 1, 1)))
    if down < between < up:
        assert [align(between, grain, timezone, up=up) for up in (False, True)] == [down, up]


@given(instants, st.sampled_from(ZONES))
def test_grains_nest(instant, timezone):
    month, week, day, hour = (align(instant, grain, timezone) for grain in reversed(Grain))
    assert month <= day <= hour
    assert week <= day
    assert align(hour, Grain.DAY, timezone) == day
    assert align(day, Grain.MONTH, timezone) == month
    if timezone == "Europe/Berlin":
        assert local_wall(week, timezone).isocalendar()[2] == 1


@pytest.mark.parametrize("grain", Grain)
@pytest.mark.parametrize("timezone", ["UTC", "Asia/Kathmandu", "America/New_York"])
def test_the_calendar_ends(grain, timezone):
    for last in (datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC)):
        assert align(last, grain, timezone) <= last <= align(last, grain, timezone, up=True)


def test_whole_numbers_have_no_grain():
    with pytest.raises(
        BoundFormatError, match="start 7 is a whole number, which no day holds; leave out the grain"
    ):
        align(7, Grain.DAY, "UTC")

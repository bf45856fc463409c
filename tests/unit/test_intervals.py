from __future__ import annotations

import itertools
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_backfill.engine.intervals import (
    LARGEST_NUMBER,
    SMALLEST_NUMBER,
    intersect,
    meetings,
    plain_bound,
    restored_bound,
    stored_bound,
)
from airflow_provider_backfill.engine.window import ChunkSize, Interval, Window, merge, missing
from airflow_provider_backfill.exceptions import BoundFormatError, EmptyWindowError, NaiveBoundError
from tests.unit.strategies import spans, utc

pytestmark = pytest.mark.unit


def test_an_interval_from_a_database_session_in_another_zone_is_the_same():
    berlin = ZoneInfo("Europe/Berlin")
    interval = Interval(datetime(2026, 1, 1, 1, tzinfo=berlin), datetime(2026, 1, 2, 1, tzinfo=berlin))
    assert interval == Interval(utc(2026, 1, 1), utc(2026, 1, 2))
    assert str(interval).startswith("2026-01-01T00:00:00+00:00")
    with pytest.raises(NaiveBoundError):
        Interval(datetime(2026, 1, 1), utc(2026, 1, 2))  # noqa: DTZ001
    with pytest.raises(EmptyWindowError):
        Interval(3, 3)


def _numbers(intervals) -> set[int]:
    return {number for interval in intervals for number in range(interval.start, interval.end)}


@given(spans, st.lists(spans, max_size=8))
def test_due_and_covered_make_the_window(window, covered):
    due = missing(window, covered)
    assert _numbers(due) == _numbers([window]) - _numbers(covered)
    assert _numbers(merge([*due, *covered])) == _numbers([window]) | _numbers(covered)
    assert not any(gap.overlaps(part) for gap in due for part in covered)
    assert merge(due) == due


@given(st.lists(spans, max_size=8))
def test_merge_is_the_union_in_order(intervals):
    merged = merge(intervals)
    assert _numbers(merged) == _numbers(intervals)
    assert all(before.end < after.start for before, after in itertools.pairwise(merged))  # type: ignore[operator]
    assert merge(reversed(merged)) == merged


@given(st.lists(spans, max_size=8), st.lists(spans, max_size=8))
def test_what_lies_in_both_unions(one, other):
    both = intersect(one, other)
    assert _numbers(both) == _numbers(one) & _numbers(other)
    assert merge(both) == both == intersect(other, one)


@given(st.lists(spans, max_size=8), st.lists(spans, max_size=8))
def test_meetings_are_the_pairs_that_overlap(one, other):
    ranges = merge(one)
    pairs = [(i, j) for j, each in enumerate(other) for i, part in enumerate(ranges) if part.overlaps(each)]
    assert list(meetings(ranges, other)) == pairs


@given(spans, st.integers(-5, 90))
def test_halves_meet_at_the_bound(span, bound):
    before, behind = span.halves(bound)
    assert _numbers(filter(None, [before])) == {number for number in _numbers([span]) if number < bound}
    assert _numbers(filter(None, [behind])) == {number for number in _numbers([span]) if number >= bound}


@given(spans, spans)
def test_intersection_overlap_and_containment_agree(one, other):
    both = one.intersection(other)
    assert _numbers([both] if both else []) == _numbers([one]) & _numbers([other])
    assert one.overlaps(other) == other.overlaps(one) == (both is not None)
    assert one.contains(other) == (both == other)


def test_instants_have_the_same_algebra():
    window = Window.parse("2026-01-01", "2026-01-06").interval
    days = Window.parse("2026-01-01", "2026-01-06").split(ChunkSize.parse("1d"))
    assert missing(window, [days[1], days[3]]) == (days[0], days[2], days[4])
    assert missing(window, days) == ()
    assert missing(window, []) == (window,)
    assert not days[0].overlaps(days[1])


@given(st.integers(min_value=SMALLEST_NUMBER, max_value=LARGEST_NUMBER))
def test_the_ledger_keeps_whole_numbers_exactly(number):
    assert restored_bound(stored_bound(number), whole=True) == number


@pytest.mark.parametrize("number", [SMALLEST_NUMBER - 1, LARGEST_NUMBER + 1, 2**63 - 1])
def test_numbers_that_the_ledger_cannot_keep_are_refused(number):
    with pytest.raises(
        BoundFormatError, match=f"end {number} is outside {SMALLEST_NUMBER} to {LARGEST_NUMBER}"
    ):
        stored_bound(number, "end")


def test_the_ledger_keeps_instants_as_they_are():
    instant = datetime(2026, 1, 1, tzinfo=UTC)
    assert stored_bound(instant) is instant
    assert restored_bound(instant, whole=False) is instant
    assert [plain_bound(bound) for bound in (instant, 7)] == ["2026-01-01T00:00:00+00:00", 7]

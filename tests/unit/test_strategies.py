from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from airflow_provider_backfill.engine.bounds import parse_bound
from airflow_provider_backfill.engine.coverage import Completed
from airflow_provider_backfill.engine.plan import interval_label, make_plan
from airflow_provider_backfill.engine.strategies import Asked, Known, Selection, select
from airflow_provider_backfill.engine.window import ChunkSize, Interval, Window
from airflow_provider_backfill.exceptions import (
    BoundFormatError,
    ChoiceError,
    ChunkSizeError,
    StrategyError,
    TimezoneError,
)
from tests.unit.strategies import utc
from tests.unit.test_coverage import done, plan

pytestmark = pytest.mark.unit

NOW = utc(2026, 1, 10, 15, 30)
DAY = Window(start=utc(2026, 1, 1), end=utc(2026, 1, 2))


def chosen(strategy: str, chunk: Any = "1d", known: Iterable[Completed] = (), **values: Any) -> Selection:
    """What a strategy chooses; ``facts`` go to what is known, the rest to what is asked."""
    facts = {"now": NOW, "completed": tuple(known), **values.pop("facts", {})}
    return select(Asked(strategy=strategy, size=ChunkSize.parse(chunk), **values), Known(**facts))


def shown(windows: Iterable[Window]) -> list[str]:
    """Windows in their zone, whole days as dates."""
    return [interval_label(each.interval, each.timezone) for each in windows]


def window(start: Any, end: Any, timezone: str = "UTC") -> Window:
    return Window.parse(start, end, timezone)


# --- full


def test_full_goes_from_the_initial_value_to_the_last_day_that_is_over():
    made = chosen("full", grain="day", facts={"initial_value": utc(2026, 1, 1)})
    assert shown(made.windows) == ["2026-01-01 → 2026-01-10"]
    assert not made.done


def test_full_in_a_zone_ends_with_its_day():
    facts = {"initial_value": utc(2025, 12, 31, 15), "now": utc(2026, 1, 10, 15, 30)}
    made = chosen("full", grain="day", timezone="Asia/Tokyo", facts=facts)
    assert shown(made.windows) == ["2026-01-01 → 2026-01-11"]


def test_full_with_an_initial_value_off_the_grain_begins_with_a_short_window():
    made = chosen("full", grain="day", facts={"initial_value": utc(2026, 1, 1, 14)})
    assert shown(made.windows) == ["2026-01-01T14:00 → 2026-01-02T00:00", "2026-01-02 → 2026-01-10"]


def test_full_of_ids():
    made = chosen("full", 100, facts={"initial_value": 1, "now": 1_001})
    assert [each.interval for each in made.windows] == [Interval(1, 1_001)]


def test_without_a_grain_now_is_the_end():
    made = chosen("full", facts={"initial_value": utc(2026, 1, 10)})
    assert [each.end for each in made.windows] == [NOW]


@pytest.mark.parametrize("start", [utc(2026, 1, 10), utc(2026, 2, 1)])
def test_where_no_day_is_over_nothing_is_to_be_done(start):
    assert chosen("full", grain="day", facts={"initial_value": start}) == Selection()


# --- window


def test_a_window_is_as_given():
    given = window("2026-01-01T06:00Z", "2026-02-03T07:00Z")
    assert chosen("window", window=given).windows == (given,)


@pytest.mark.parametrize(
    ("grain", "aligned"),
    [
        ("hour", "2026-01-01T06:00 → 2026-01-03T08:00"),
        ("day", "2026-01-01 → 2026-01-04"),
        ("week", "2025-12-29 → 2026-01-05"),
        # January is not over.
        ("month", None),
    ],
)
def test_a_window_is_aligned_outward_and_not_beyond_the_present(grain, aligned):
    made = chosen("window", grain=grain, window=window("2026-01-01T06:20Z", "2026-01-03T07:01Z"))
    assert shown(made.windows) == ([aligned] if aligned else [])


def test_a_window_is_aligned_in_its_zone():
    given = window("2026-01-01T00:30+01:00", "2026-01-02T00:30+01:00", "Europe/Berlin")
    made = chosen("window", grain="day", window=given, timezone="Asia/Tokyo")
    assert made.windows == (window("2026-01-01", "2026-01-03", "Europe/Berlin"),)


# --- gaps


def test_gaps_are_what_is_missing():
    week = plan("2026-01-01", "2026-01-08", "1d")
    made = chosen("gaps", known=done(week, 1, 2, 4), window=week.window)
    assert shown(made.windows) == [
        "2026-01-01 → 2026-01-02",
        "2026-01-04 → 2026-01-05",
        "2026-01-06 → 2026-01-08",
    ]
    assert chosen("gaps", known=done(week), window=week.window) == Selection()


def test_gaps_without_a_window_reach_from_the_history_to_now():
    week = plan("2026-01-01", "2026-01-08", "1d")
    initial = {"initial_value": utc(2025, 12, 31)}
    made = chosen("gaps", known=done(week), grain="day", facts=initial)
    assert shown(made.windows) == ["2025-12-31 → 2026-01-01", "2026-01-08 → 2026-01-10"]
    # A source that does not say where it starts does so where it was first loaded.
    assert shown(chosen("gaps", known=done(week, 2, 4), grain="day").windows) == [
        "2026-01-04 → 2026-01-05",
        "2026-01-06 → 2026-01-10",
    ]


def test_a_gap_that_starts_off_the_grain_is_cut_at_it():
    before = plan("2026-01-01", "2026-01-03T12:00Z", "1d")
    made = chosen("gaps", known=done(before), grain="day", window=window("2026-01-01", "2026-01-08"))
    assert shown(made.windows) == ["2026-01-03T12:00 → 2026-01-04T00:00", "2026-01-04 → 2026-01-08"]


def test_an_unfinished_backfill_is_resumed_under_its_own_name():
    outage = plan("2026-01-02", "2026-01-07", "1d")
    facts = {"unfinished": (outage.window,)}
    made = chosen("gaps", known=done(outage, 0, 3), window=window("2026-01-01", "2026-01-09"), facts=facts)
    assert shown(made.windows) == [
        "2026-01-01 → 2026-01-02",
        "2026-01-02 → 2026-01-07",
        "2026-01-07 → 2026-01-09",
    ]


def test_an_unfinished_backfill_of_which_more_is_missing_than_was_asked_for_is_not():
    outage = plan("2026-01-02", "2026-01-07", "1d")
    facts = {"unfinished": (outage.window,)}
    made = chosen("gaps", known=done(outage, 0, 3), window=window("2026-01-01", "2026-01-06"), facts=facts)
    assert shown(made.windows) == ["2026-01-01 → 2026-01-02", "2026-01-03 → 2026-01-05"]


def test_of_unfinished_backfills_that_overlap_one_is_resumed():
    facts = {"unfinished": (window("2026-01-03", "2026-01-06"), window("2026-01-01", "2026-01-04"))}
    made = chosen("gaps", window=window("2026-01-01", "2026-01-06"), facts=facts)
    assert shown(made.windows) == ["2026-01-01 → 2026-01-04", "2026-01-04 → 2026-01-06"]


# --- forward only


def test_forward_only_records_what_is_missing_before():
    week = plan("2026-01-01", "2026-01-08", "1d")
    facts = {"initial_value": utc(2026, 1, 1)}
    made = chosen("forward_only", known=done(week, 1), since=utc(2026, 1, 5, 9), grain="day", facts=facts)
    assert shown(made.windows) == ["2026-01-05 → 2026-01-10"]
    assert shown(made.done) == ["2026-01-01 → 2026-01-02", "2026-01-03 → 2026-01-05"]


@pytest.mark.parametrize(
    ("since", "windows", "before"),
    [
        ("2025-12-01", ["2026-01-01 → 2026-01-08"], []),
        ("2026-01-01", ["2026-01-01 → 2026-01-08"], []),
        ("2026-01-08", [], ["2026-01-01 → 2026-01-08"]),
        ("2026-02-01", [], ["2026-01-01 → 2026-01-08"]),
    ],
)
def test_forward_only_from_beyond_the_window(since, windows, before):
    since = parse_bound(since, "start", "UTC")
    made = chosen("forward_only", since=since, window=window("2026-01-01", "2026-01-08"))
    assert (shown(made.windows), shown(made.done)) == (windows, before)


def test_forward_only_without_a_known_history_starts_there():
    made = chosen("forward_only", since=utc(2026, 1, 5), grain="day")
    assert (shown(made.windows), made.done) == (["2026-01-05 → 2026-01-10"], ())


# --- since failed


def test_since_failed_starts_at_the_first_failure_that_still_stands():
    week = plan("2026-01-01", "2026-01-08", "1d")
    failed = tuple(week.chunks[number].interval for number in (4, 1, 2))
    mended = Completed(backfill_id="other", chunk_id="000000", interval=week.chunks[1].interval)
    known = [*done(week, 3, 5), mended]
    made = chosen("since_failed", known=known, grain="day", facts={"failed": failed})
    assert shown(made.windows) == [
        "2026-01-03 → 2026-01-04",
        "2026-01-05 → 2026-01-06",
        "2026-01-07 → 2026-01-10",
    ]
    made = chosen(
        "since_failed", known=known, window=window("2026-01-04", "2026-01-06"), facts={"failed": failed}
    )
    assert shown(made.windows) == ["2026-01-05 → 2026-01-06"]


def test_since_failed_resumes_the_backfill_that_failed():
    week = plan("2026-01-01", "2026-01-08", "1d")
    facts = {"failed": (week.chunks[3].interval,), "unfinished": (week.window,)}
    made = chosen("since_failed", known=done(week, 0, 1, 2), grain="day", facts=facts)
    assert [each.interval for each in made.windows] == [
        week.window.interval,
        window("2026-01-08", "2026-01-10").interval,
    ]


def test_since_failed_without_failures_does_nothing():
    week = plan("2026-01-01", "2026-01-08", "1d")
    assert chosen("since_failed") == Selection()
    assert (
        chosen("since_failed", known=done(week), facts={"failed": (week.chunks[2].interval,)}) == Selection()
    )
    late = {"failed": (week.chunks[6].interval,)}
    assert chosen("since_failed", window=window("2026-01-01", "2026-01-03"), facts=late) == Selection()


# --- lookback


@pytest.mark.parametrize(
    ("lookback", "numbers"), [(0, []), (1, [4]), (3, [2, 3, 4]), (9, range(5)), (10**9, range(5))]
)
def test_whole_chunks_before_the_start_are_redone(lookback, numbers):
    before = plan("2026-01-01", "2026-01-06", "1d")
    made = chosen("window", known=done(before), lookback=lookback, window=window("2026-01-06", "2026-01-08"))
    assert [int(each.chunk_id) for each in made.redo] == list(numbers)
    assert shown(made.windows) == ["2026-01-06 → 2026-01-08"]


def test_chunks_that_reach_into_the_lookback_are_redone_whole():
    before = plan("2026-01-01", "2026-01-06", "2d")
    made = chosen("window", "6h", known=done(before), lookback=5, window=window("2026-01-06", "2026-01-07"))
    assert [int(each.chunk_id) for each in made.redo] == [1, 2]


def test_lookback_follows_the_clocks_and_stays_within_the_history():
    zone = "Europe/Berlin"
    before = plan("2026-03-26", "2026-03-30", "1d", zone)
    asked: dict[str, Any] = {
        "known": done(before),
        "lookback": 2,
        "window": window("2026-03-30", "2026-03-31", zone),
    }
    assert [int(each.chunk_id) for each in chosen("window", **asked).redo] == [2, 3]
    facts = {"initial_value": before.chunks[3].interval.start}
    assert [int(each.chunk_id) for each in chosen("window", **asked, facts=facts).redo] == [3]


@pytest.mark.parametrize("size", ["1mo", "1d", "5m"])
def test_lookback_ends_with_the_calendar(size):
    first = Window(start=utc(1, 1, 1), end=utc(1, 1, 2))
    before = Completed(backfill_id="other", chunk_id="000000", interval=first.interval)
    made = chosen("window", size, known=[before], lookback=10**12, window=window("0001-01-02", "0001-01-03"))
    assert made.redo == (before,)


def test_lookback_of_whole_numbers_and_of_each_gap():
    before = plan(0, 100, 10)
    made = chosen("gaps", 10, known=done(before, 0, 1, 2, 5, 6, 8), lookback=1, window=window(0, 100))
    assert [each.interval for each in made.windows] == [Interval(30, 50), Interval(70, 80), Interval(90, 100)]
    assert [int(each.chunk_id) for each in made.redo] == [2, 6, 8]


def test_forward_only_loads_nothing_before_again():
    before = plan("2026-01-01", "2026-01-06", "1d")
    made = chosen("forward_only", known=done(before), lookback=2, since=utc(2026, 1, 6))
    assert made.redo == ()


# --- refused


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"strategy": "all"}, ChoiceError, "strategy 'all' is unknown; pass full or window or gaps or"),
        ({"strategy": "gaps", "grain": "year"}, ChoiceError, "grain 'year' is unknown; pass hour or day or"),
        ({"strategy": "gaps", "lookback": -1}, StrategyError, "'gaps' has lookback -1; pass how many chunks"),
        ({"strategy": "gaps", "timezone": "Europe/Berln"}, TimezoneError, "did you mean Europe/Berlin"),
        ({"strategy": "full"}, StrategyError, "'full' has no start: the source has no initial_value; give"),
        ({"strategy": "gaps"}, StrategyError, "'gaps' has no start"),
        ({"strategy": "window"}, StrategyError, "'window' was given no window; pass start and end"),
        (
            {"strategy": "full", "window": DAY},
            StrategyError,
            "'full' was given a window .2026-01-01.*; pass strategy window",
        ),
        ({"strategy": "forward_only"}, StrategyError, "was not told before which instant .* pass since"),
        (
            {"strategy": "forward_only", "since": 7},
            StrategyError,
            "has since 7, a whole number, and the present 2026-01-10T15:30:00.00:00, a time; pass all as",
        ),
        (
            {"strategy": "window", "window": window(1, 5), "facts": {"initial_value": NOW}},
            StrategyError,
            "has start 1, a whole number, and the source's initial_value 2026",
        ),
        (
            {"strategy": "since_failed", "window": window(1, 5), "facts": {"failed": (DAY.interval,)}},
            StrategyError,
            "and a failed chunk's start 2026",
        ),
        (
            {"strategy": "gaps", "window": window(1, 5), "facts": {"unfinished": (DAY,)}},
            StrategyError,
            "and an unfinished backfill's start 2026",
        ),
        (
            {"strategy": "gaps", "window": window(1, 5), "known": done(make_plan("web_events", DAY, "1d"))},
            BoundFormatError,
            "start 1 is a whole number, and backfill .* went by times",
        ),
        (
            {"strategy": "window", "window": window(1, 5), "chunk": 2, "grain": "day"},
            BoundFormatError,
            "which no day holds",
        ),
        ({"strategy": "window", "window": window(1, 5), "lookback": 1}, ChunkSizeError, "a length of time"),
    ],
)
def test_what_cannot_be_chosen_from_is_told(values, error, message):
    with pytest.raises(error, match=message):
        chosen(**values)

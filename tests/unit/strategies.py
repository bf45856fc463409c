"""What the property tests draw from, and how the window tests write instants."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from airflow_provider_backfill.engine.coverage import Completed
from airflow_provider_backfill.engine.plan import BackfillPlan, make_plan
from airflow_provider_backfill.engine.window import ChunkSize, Interval, Window

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",  # skipped midnight
    "Asia/Beirut",  # skipped midnight
    "America/Havana",  # shows midnight twice
    "Australia/Lord_Howe",  # moves by half an hour
    "Pacific/Apia",  # skipped a day
    "America/Juneau",  # lived a day twice
    "Africa/Casablanca",
    "Asia/Kathmandu",
]


def utc(*fields: int) -> datetime:
    return datetime(*fields, tzinfo=UTC)  # type: ignore[arg-type,misc]


instants = st.datetimes(
    min_value=datetime(1850, 1, 1),  # noqa: DTZ001
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
sizes = st.builds(
    lambda count, unit: ChunkSize.parse(f"{count}{unit}"),
    st.integers(1, 40),
    st.sampled_from(["h", "d", "w", "mo"]),
)


@st.composite
def windows(draw) -> Window:
    start = draw(instants)
    if draw(st.booleans()):
        start = start.replace(minute=0, second=0, microsecond=0)
    length = draw(st.timedeltas(timedelta(microseconds=1), timedelta(days=60)))
    return Window(start=start, end=start + length, timezone=draw(st.sampled_from(ZONES)))


spans = st.builds(
    lambda start, length: Interval(start, start + length), st.integers(0, 60), st.integers(1, 20)
)


@st.composite
def plans(draw) -> BackfillPlan:
    """Of times or of whole numbers, of few chunks; one in two days is one on which clocks are moved."""
    if draw(st.booleans()):
        span = draw(spans)
        window, size = Window(start=span.start, end=span.end), ChunkSize.parse(draw(st.integers(1, 20)))
    else:
        start = draw(st.sampled_from([utc(2026, 3, 28, 12), utc(2026, 10, 24, 23), utc(2026, 1, 31)]))
        length = timedelta(hours=draw(st.integers(1, 100)))
        window = Window(start=start, end=start + length, timezone=draw(st.sampled_from(ZONES)))
        size = ChunkSize.parse(draw(st.sampled_from(["7h", "24h", "1d", "1w", "1mo"])))
    return make_plan("web_events", window, size)


@st.composite
def completions(draw, plan: BackfillPlan) -> list[Completed]:
    """Chunks that other backfills have completed in and around a plan's window, none overlapping another."""
    first, last = plan.window.start, plan.window.end
    about = [
        *(chunk.interval.start for chunk in plan.chunks),
        *(first + (last - first) * part // 8 for part in range(-2, 11)),  # type: ignore[operator]
    ]
    bounds = sorted(set(draw(st.lists(st.sampled_from(about), max_size=8))))
    return [
        Completed(backfill_id=backfill, chunk_id=f"{number:06d}", interval=Interval(start, end))
        for number, (start, end) in enumerate(itertools.pairwise(bounds))
        if (backfill := draw(st.sampled_from([None, "other", "third"])))
    ]


class Cells:
    """What intervals cover, counted in the smallest parts that their bounds make: a model of the algebra."""

    def __init__(self, *intervals: Iterable[Interval]) -> None:
        every = [interval for some in intervals for interval in some]
        self._bounds = sorted({bound for each in every for bound in (each.start, each.end)})

    def of(self, intervals: Iterable[Interval]) -> list[int]:
        """The numbers of the parts, one for each interval that a part lies in."""
        return sorted(
            number
            for each in intervals
            for number, (start, end) in enumerate(itertools.pairwise(self._bounds))
            if each.contains(Interval(start, end))
        )

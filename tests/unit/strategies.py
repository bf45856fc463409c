"""What the property tests draw from, and how the window tests write instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

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

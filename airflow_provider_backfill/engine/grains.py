"""The grain of a source's data, and bounds aligned to it (pure)."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from airflow_provider_backfill.engine.bounds import Bound
from airflow_provider_backfill.engine.timezones import local_wall
from airflow_provider_backfill.engine.window import ChunkSize, calendar_step
from airflow_provider_backfill.exceptions import BoundFormatError

_HOUR = timedelta(hours=1)


class Grain(StrEnum):
    """What a source's data comes in."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


_STEPS = {Grain.DAY: ChunkSize(1, "d"), Grain.WEEK: ChunkSize(7, "d"), Grain.MONTH: ChunkSize(1, "mo")}


def align(bound: Bound, grain: Grain, timezone: str, *, up: bool = False) -> datetime:
    """The grain's last bound that is not after an instant, or its first that is not before.

    Days, weeks (from Monday, as in ISO-8601) and months begin at the first instant of a local day. Hours are
    elapsed time, counted from there: where clocks are moved by half an hour, those behind begin at half past.

    Args:
        bound: The instant.
        grain: What to align to.
        timezone: Canonical name of the zone.
        up: Not before, instead of not after; default False.

    Raises:
        BoundFormatError: It is a whole number.
    """
    if isinstance(bound, int):
        raise BoundFormatError(
            "start", bound, f"is a whole number, which no {grain} holds", "leave out the grain"
        )
    floor, ceiling = _around(bound, grain, timezone)
    return ceiling if up and floor != bound else floor


def _around(instant: datetime, grain: Grain, timezone: str) -> tuple[datetime, datetime]:
    """The bounds nearest to an instant: not after it, and after it; the instant where the calendar ends."""
    if grain is Grain.HOUR:
        day, next_day = _around(instant, Grain.DAY, timezone)
        floor = day + (instant - day) // _HOUR * _HOUR
        return floor, floor + min(_HOUR, next_day - floor)
    wall = local_wall(instant, timezone).replace(hour=0, minute=0, second=0, microsecond=0)
    if grain is Grain.WEEK:
        wall -= timedelta(days=wall.weekday())
    elif grain is Grain.MONTH:
        wall = wall.replace(day=1)
    # Three: where a zone lived a day twice, the next one began before the instant that shows this one.
    bounds = [calendar_step(wall, timezone, _STEPS[grain], number) for number in range(3)]
    return (
        max((bound for bound in bounds if bound <= instant), default=instant),
        min((bound for bound in bounds if bound > instant), default=instant),
    )

"""Time zones: names made canonical, and local wall time turned into instants (pure)."""

from __future__ import annotations

import difflib
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from airflow_provider_backfill.exceptions import TimezoneError

#: Names of the zone that is always at offset zero. All become ``UTC``, so that identity does not fork.
_UTC_NAMES = frozenset({"z", "utc", "uct", "universal", "zulu", "gmt", "gmt0", "gmt+0", "gmt-0", "greenwich"})


def resolve_timezone(timezone: str | tzinfo) -> str:
    """The canonical spelling of a time zone: ``utc``, ``Etc/UTC`` and ``Z`` are ``UTC``.

    Args:
        timezone: An IANA name, in any case, or an object that carries one (``ZoneInfo``, pendulum's).

    Raises:
        TimezoneError: There is no such zone.
    """
    # Their str() differs: ZoneInfo gives its key, datetime.timezone a name, pendulum's a representation.
    name = getattr(timezone, "key", None) or getattr(timezone, "name", None) or str(timezone)
    wanted = name.strip().casefold() if isinstance(name, str) else ""
    if wanted.removeprefix("etc/") in _UTC_NAMES:
        return "UTC"
    names = _names()
    if wanted not in names:
        near = difflib.get_close_matches(wanted.replace(" ", "_"), names, n=3)
        raise TimezoneError(name, [names[match] for match in near])
    return names[wanted]


@cache
def _names() -> dict[str, str]:
    # "localtime" means another zone on another machine, and "Factory" means that none was set.
    return {name.casefold(): name for name in sorted(available_timezones() - {"localtime", "Factory"})}


@cache
def zone(timezone: str) -> ZoneInfo:
    """The rules of a zone whose name is canonical."""
    return ZoneInfo(timezone)


def local_wall(instant: datetime, timezone: str) -> datetime:
    """What clocks in the zone show at an instant: naive, with ``fold`` as PEP 495 has it.

    Raises:
        OverflowError: The year there is not within 1 to 9999.
    """
    return instant.astimezone(zone(timezone)).replace(tzinfo=None)


def first_instant(wall: datetime, timezone: str) -> datetime:
    """The first instant, in UTC, at which clocks in the zone show ``wall`` or later.

    A wall time that occurs twice is its first occurrence. One that daylight saving skips is the end of the
    gap, so consecutive wall times give instants that never run backwards.

    Raises:
        OverflowError: The instant's year is not within 1 to 9999.
    """
    late = wall.replace(tzinfo=zone(timezone), fold=0).astimezone(UTC)
    if local_wall(late, timezone) == wall:
        return late
    # In a gap. With fold=0 the offset before it was used and the result lies behind the gap's instant;
    # with fold=1 it lies ahead of it. Offsets change on whole seconds: halve the seconds between.
    late = late.replace(microsecond=0)
    early = wall.replace(tzinfo=zone(timezone), fold=1, microsecond=0).astimezone(UTC)
    while late - early > timedelta(seconds=1):
        middle = early + timedelta(seconds=(late - early) // timedelta(seconds=2))
        if local_wall(middle, timezone) < wall:
            early = middle
        else:
            late = middle
    return late


def day_start(day: date, timezone: str) -> datetime:
    """The first instant of a local day, in UTC: midnight, or the end of the gap where midnight is skipped.

    Raises:
        OverflowError: The instant's year is not within 1 to 9999.
    """
    return first_instant(datetime.combine(day, time.min), timezone)


def is_ambiguous(instant: datetime, timezone: str) -> bool:
    """Clocks in the zone show the same wall time at another instant too."""
    local = instant.astimezone(zone(timezone))
    return local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()

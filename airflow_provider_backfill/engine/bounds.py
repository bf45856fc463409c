"""What people and templates write as a window's bound, turned into an instant or a whole number (pure)."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from datetime import timezone as fixed_offset
from typing import TypeAlias

from airflow_provider_backfill.engine.timezones import day_start
from airflow_provider_backfill.exceptions import BoundFormatError, NaiveBoundError

#: A bound once parsed: an instant in UTC, or a whole number for a source whose cursor is an id.
Bound: TypeAlias = datetime | int
#: A bound as given.
BoundInput: TypeAlias = str | int | date | datetime

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    r"(?P<year>[0-9]{4})(?P<dash>-?)(?P<month>[0-9]{2})(?P=dash)(?P<day>[0-9]{2})[Tt ]"
    r"(?P<hour>[0-9]{2})(?::?(?P<minute>[0-9]{2})(?::?(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?)?"
    r"(?P<offset>[Zz]|(?P<sign>[+-])(?P<hours>[0-9]{2})(?::?(?P<minutes>[0-9]{2})(?::?(?P<seconds>[0-9]{2}))?)?)?"
)
_LARGEST = 2**63 - 1


def parse_bound(value: object, bound: str, timezone: str) -> Bound:
    """Turn one bound into an instant in UTC, or into a whole number.

    Args:
        value: ISO-8601 text with an offset, an aware datetime, a date (as text or object: the day's first
            instant in ``timezone``), or a whole number (as text: digits alone).
        bound: ``start`` or ``end``, for messages.
        timezone: The canonical name of the zone that bare dates are in.

    Raises:
        NaiveBoundError: A time without an offset.
        BoundFormatError: Anything else, or an instant outside the years 1 to 9999 in UTC.
    """
    try:
        if isinstance(value, str):
            return _parse_text(value.strip(), value, bound, timezone)
        if isinstance(value, datetime):
            return as_utc(value, bound)
        if isinstance(value, date):
            return day_start(value, timezone)
        if isinstance(value, int) and not isinstance(value, bool):
            return _whole(value, value, bound)
    except OverflowError:
        raise BoundFormatError(
            bound, value, "is outside the years 1 to 9999 in UTC", "pass a time within them"
        ) from None
    raise BoundFormatError(
        bound, value, f"is of type {type(value).__name__}, neither a time nor a whole number"
    )


def as_utc(value: datetime, bound: str) -> datetime:
    """The instant as a plain ``datetime`` in UTC, whatever subclass and zone it comes in.

    Raises:
        NaiveBoundError: It has no offset.
        OverflowError: It is outside the years 1 to 9999 in UTC.
    """
    if type(value) is datetime and value.tzinfo is UTC:
        return value
    if value.utcoffset() is None:
        text = value.isoformat()
        raise NaiveBoundError(bound, text, f"{text}Z")
    utc = value.astimezone(UTC)
    return datetime(
        utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.microsecond, tzinfo=UTC
    )


def _parse_text(text: str, given: str, bound: str, timezone: str) -> Bound:
    if _WHOLE.fullmatch(text):
        # int() itself refuses thousands of digits, with a message of its own.
        return _whole(int(text) if len(text) < 100 else _LARGEST + 1, given, bound)
    try:
        if match := _DATE.fullmatch(text):
            return day_start(date(*map(int, match.groups())), timezone)
        if match := _TIME.fullmatch(text):
            return _parse_time(match, given, bound)
    except ValueError as error:
        raise BoundFormatError(bound, given, f"is no valid time: {error}") from None
    raise BoundFormatError(bound, given, "is no ISO-8601 time and no whole number")


def _parse_time(match: re.Match[str], given: str, bound: str) -> datetime:
    digits = (match["fraction"] or "").rstrip("0")
    if len(digits) > 6:
        raise BoundFormatError(
            bound, given, "is finer than a microsecond", "pass at most six digits after the second"
        )
    hour = int(match["hour"])
    wall = datetime(  # noqa: DTZ001
        int(match["year"]),
        int(match["month"]),
        int(match["day"]),
        # ISO-8601 writes the midnight that ends a day as 24:00.
        0 if hour == 24 else hour,
        int(match["minute"] or 0),
        int(match["second"] or 0),
        int(digits.ljust(6, "0")),
    )
    if hour == 24:
        if wall.minute or wall.second or wall.microsecond:
            raise ValueError("hour 24 is midnight only")
        wall += timedelta(days=1)
    if match["offset"] is None:
        raise NaiveBoundError(bound, given, f"{wall.isoformat()}Z")
    return as_utc(wall.replace(tzinfo=_parse_offset(match)), bound)


def _parse_offset(match: re.Match[str]) -> fixed_offset:
    if match["sign"] is None:
        return UTC
    hours, minutes, seconds = (int(match[part] or 0) for part in ("hours", "minutes", "seconds"))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError("offset must be in -23:59..+23:59")
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return fixed_offset(offset if match["sign"] == "+" else -offset)


def _whole(number: int, given: str | int, bound: str) -> int:
    if abs(number) > _LARGEST:
        raise BoundFormatError(bound, given, "does not fit into 64 bits", "pass a smaller whole number")
    return number

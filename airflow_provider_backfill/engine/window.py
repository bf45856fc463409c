"""Windows and the sizes they are cut by (pure).

Elapsed sizes (``24h``) add seconds. Calendar sizes (``1d``) step the clocks of the window's time zone,
starting from what they show at the window's start: boundary ``k`` is the first instant at which they show
``wall(start) + k * size`` or later. It is reckoned from the start and not from the boundary before, so months
keep their day: from 01-31 by ``1mo`` come 02-29, 03-31.
"""

from __future__ import annotations

import calendar
import logging
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal, TypeAlias

from airflow_provider_backfill.engine.bounds import Bound, BoundInput, parse_bound
from airflow_provider_backfill.engine.intervals import Interval, merge, missing
from airflow_provider_backfill.engine.timezones import first_instant, local_wall, resolve_timezone
from airflow_provider_backfill.exceptions import (
    BoundFormatError,
    ChunkSizeError,
    EmptyWindowError,
    TooManyChunksError,
)

__all__ = ["Bound", "BoundInput", "ChunkSize", "Interval", "Window", "merge", "missing"]

logger = logging.getLogger(__name__)

#: A plan has no more, whatever is set: the ledger sorts their ids, of six digits, as texts.
MOST_CHUNKS = 1_000_000

Unit: TypeAlias = Literal["s", "m", "h", "d", "mo", ""]

_SIZE = re.compile(r"([0-9]+)([A-Za-z]*)")
_YEARS = 1_000
#: The largest count of each unit; the empty unit is for whole numbers.
_LARGEST: dict[Unit, int] = {
    "s": _YEARS * 31_557_600,
    "m": _YEARS * 525_960,
    "h": _YEARS * 8_766,
    "d": _YEARS * 36_525 // 100,
    "mo": _YEARS * 12,
    "": 2**63 - 1,
}
#: What people may write as unit, in canonical units.
_UNITS: dict[str, tuple[int, Unit]] = {unit: (1, unit) for unit in _LARGEST} | {"w": (7, "d")}
_SECONDS = {"s": 1, "m": 60, "h": 3_600}
_NEVER = datetime.max.replace(tzinfo=UTC)
# More calendar steps than this are counted by bisection, not walked. The two differ only where a zone skips
# whole days (Pacific/Apia, 2011-12-30).
_LONGEST_WALK = 50_000


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """How long a chunk is. ``str()`` gives the canonical spelling, which identity is made from.

    Args:
        count: How many units: from 1 to what 1,000 years have, or 64 bits hold.
        unit: ``s``, ``m``, ``h`` for elapsed time; ``d``, ``mo`` for calendar steps in the window's zone;
            empty for whole numbers.

    Raises:
        ChunkSizeError: The count is out of range.
    """

    count: int
    unit: Unit

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ChunkSizeError(str(self), "is not greater than 0")
        if self.count > _LARGEST[self.unit]:
            raise _too_long(str(self), self.unit)

    def __str__(self) -> str:
        return f"{self.count}{self.unit}"

    @classmethod
    def parse(cls, size: ChunkSize | str | int) -> ChunkSize:
        """Read ``<N>s|m|h|d|w|mo`` or a whole number. ``01d`` is ``1d``, and ``1w`` is ``7d``.

        Raises:
            ChunkSizeError: It is neither, or out of range.
        """
        if isinstance(size, ChunkSize):
            return size
        if isinstance(size, int) and not isinstance(size, bool):
            return cls(size, "")
        if not isinstance(size, str):
            raise ChunkSizeError(size, f"is of type {type(size).__name__}, neither text nor a whole number")
        match = _SIZE.fullmatch(size.strip())
        if match is None:
            raise ChunkSizeError(size, "is not a number and a unit")
        digits = match[1].lstrip("0") or "0"
        factor, unit = _UNITS.get(match[2], (0, ""))
        if not factor:
            raise ChunkSizeError(size, f"has an unknown unit, {match[2]!r}")
        # int() itself refuses thousands of digits, with a message of its own.
        if len(digits) > 19:
            raise _too_long(size, unit)
        return cls(int(digits) * factor, unit)

    @property
    def calendar(self) -> bool:
        """Steps follow the zone's clocks, daylight saving included, and not elapsed time."""
        return self.unit in {"d", "mo"}

    @property
    def whole(self) -> bool:
        """For windows of whole numbers."""
        return self.unit == ""

    @property
    def step(self) -> timedelta | int:
        """How far apart boundaries are; calendar sizes have no such length."""
        return self.count if self.whole else timedelta(seconds=self.count * _SECONDS[self.unit])


def _too_long(size: str, unit: Unit) -> ChunkSizeError:
    limit = f"{_LARGEST[unit]}{unit}" + (f" ({_YEARS} years)" if unit else "")
    return ChunkSizeError(size, f"is longer than the longest chunk, {limit}", "pass a smaller one, e.g. 1d")


def calendar_step(wall: datetime, timezone: str, size: ChunkSize, number: int) -> datetime:
    """The boundary ``number`` calendar steps behind a local wall time; the last instant of all if none is."""
    units = number * size.count
    try:
        if size.unit == "d":
            return first_instant(wall + timedelta(days=units), timezone)
        year, month = divmod(wall.year * 12 + wall.month - 1 + units, 12)
        day = min(wall.day, calendar.monthrange(year, month + 1)[1])
        return first_instant(wall.replace(year=year, month=month + 1, day=day), timezone)
    except (OverflowError, ValueError):
        return _NEVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a backfill covers: ``[start, end)``. `parse` reads what people and templates write.

    Args:
        start: An aware datetime, which is turned to UTC. Or a whole number.
        end: First instant behind, of the same kind.
        timezone: IANA name of the zone whose clocks calendar chunks follow; default ``UTC``, and always
            that for whole numbers.

    Raises:
        WindowError: As `parse` does.
    """

    start: Bound
    end: Bound
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        interval = Interval(self.start, self.end)
        timezone = resolve_timezone(self.timezone)
        object.__setattr__(self, "start", interval.start)
        object.__setattr__(self, "end", interval.end)
        object.__setattr__(self, "timezone", timezone if isinstance(self.start, datetime) else "UTC")
        for name, bound in (("start", self.start), ("end", self.end)):
            try:
                if isinstance(bound, datetime):
                    local_wall(bound, timezone)
            except OverflowError:
                reason = f"is outside the years 1 to 9999 in {timezone}"
                raise BoundFormatError(name, bound, reason, "pass a time within them") from None

    @classmethod
    def parse(
        cls,
        start: BoundInput,
        end: BoundInput,
        timezone: str | tzinfo = "UTC",
        *,
        from_data_interval: bool = False,
    ) -> Window:
        """Read a window.

        Args:
            start: ISO-8601 text with an offset, an aware datetime, a date (as text or object: its first
                instant in ``timezone``), or a whole number (as text too).
            end: First instant behind, of the same kind.
            timezone: IANA name, or a zone object that has one; default ``UTC``.
            from_data_interval: A DAG run's data interval gave both; an empty window then names the timetable.

        Raises:
            TimezoneError: There is no such zone.
            NaiveBoundError: A time has no offset.
            BoundFormatError: A bound is neither a time nor a whole number, they are one of each, or one is
                outside the years 1 to 9999.
            EmptyWindowError: The end is not after the start.
        """
        name = resolve_timezone(timezone)
        first, last = parse_bound(start, "start", name), parse_bound(end, "end", name)
        if isinstance(first, int) != isinstance(last, int):
            kinds = ("whole number", "time") if isinstance(last, int) else ("time", "whole number")
            reason = "is a {}, and start is a {}".format(*kinds)
            raise BoundFormatError(
                "end", end, reason, "pass two times (dates with dashes, 2026-01-01) or two whole numbers"
            )
        try:
            return cls(start=first, end=last, timezone=name)
        except EmptyWindowError as error:
            raise EmptyWindowError(error.start, error.end, from_data_interval) from None

    @property
    def interval(self) -> Interval:
        return Interval(self.start, self.end)

    def count(self, size: ChunkSize) -> int:
        """How many chunks `split` would give; the cost does not grow with their number.

        Raises:
            ChunkSizeError: A length of time for a window of whole numbers, or the reverse.
        """
        self.check_kind(size)
        if not size.calendar:
            start, end, step = self._elapsed(size)
            return int(-((start - end) // step))
        steps = self._calendar_steps(size)
        return steps + 1 if steps > _LONGEST_WALK else sum(1 for _ in self._ends(size))

    def split(
        self, size: ChunkSize, max_chunks: int = 10_000, warn_chunks: int = 1_000
    ) -> tuple[Interval, ...]:
        """Cut the window into consecutive chunks; the last may be shorter.

        Args:
            size: How long a chunk is.
            max_chunks: More are refused, before any is built; default 10,000.
            warn_chunks: More are logged as a warning; default 1,000.

        Raises:
            ChunkSizeError: A length of time for a window of whole numbers, or the reverse.
            TooManyChunksError: There would be more than ``max_chunks``.
        """
        count = self.count(size)
        if count > max_chunks:
            raise TooManyChunksError(count, max_chunks, str(size), MOST_CHUNKS)
        if warning := many_chunks(count, warn_chunks):
            logger.warning(warning)
        ends = list(self._ends(size))
        return tuple(map(Interval, [self.start, *ends], ends))

    def check_kind(self, size: ChunkSize) -> None:
        """Refuse a size that does not fit.

        Raises:
            ChunkSizeError: A length of time for a window of whole numbers, or the reverse.
        """
        whole = self.interval.whole
        if size.whole and not whole:
            raise ChunkSizeError(str(size), "has no unit, and start and end are times")
        if whole and not size.whole:
            raise ChunkSizeError(
                str(size),
                f"is a length of time, and start {self.start} and end {self.end} are whole numbers",
                "pass a whole number, or write the dates with dashes (2026-01-01)",
            )

    def _ends(self, size: ChunkSize) -> Iterator[Bound]:
        """The end of each chunk, in order."""
        if size.calendar:
            last, _ = self.interval.instants
            wall = local_wall(last, self.timezone)
            for number in range(1, self._calendar_steps(size) + 1):
                end = calendar_step(wall, self.timezone, size, number)
                # A day that the zone skips would be a chunk without length.
                if last < end:
                    yield end
                    last = end
        else:
            first, _, step = self._elapsed(size)
            yield from (first + number * step for number in range(1, self.count(size)))
        yield self.end

    def _elapsed(self, size: ChunkSize) -> tuple[Any, Any, Any]:
        """Start, end and step, all numbers or all times: the arithmetic is the same."""
        return self.start, self.end, size.step

    def _calendar_steps(self, size: ChunkSize) -> int:
        """How many calendar steps end before the window does."""
        start, end = self.interval.instants
        wall = local_wall(start, self.timezone)
        # A month has 28 days or more. Two more: for the step begun, and for clocks set back in between.
        most = (end - start).days // (size.count * (28 if size.unit == "mo" else 1)) + 2
        return bisect_left(
            range(1, most + 1), end, key=lambda number: calendar_step(wall, self.timezone, size, number)
        )


def many_chunks(count: int, warn_chunks: int) -> str | None:
    """The warning about a plan of so many chunks, or None."""
    if count <= warn_chunks:
        return None
    return (
        f"this window is cut into {count} chunks, more than warn_chunks = {warn_chunks}; "
        "a larger chunk spends less on each chunk's fixed costs"
    )

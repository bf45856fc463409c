"""The algebra of half-open intervals, ``[start, end)``, of instants in UTC or of whole numbers (pure)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from airflow_provider_backfill.engine.bounds import Bound, as_utc
from airflow_provider_backfill.exceptions import BoundFormatError, EmptyWindowError

#: The whole numbers that, as microseconds since 1970, are times in the years 5 to 9892.
SMALLEST_NUMBER, LARGEST_NUMBER = -62 * 10**15, 25 * 10**16
_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """``[start, end)``, never empty. Sorts by start, then by end.

    Args:
        start: First instant inside: an aware datetime, which is turned to UTC. Or a whole number.
        end: First instant behind, of the same kind.

    Raises:
        NaiveBoundError: A datetime has no offset.
        EmptyWindowError: The end is not after the start.
    """

    start: Bound
    end: Bound

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            value = getattr(self, name)
            if isinstance(value, datetime) and (utc := as_utc(value, name)) is not value:
                object.__setattr__(self, name, utc)
        if not _before(self.start, self.end):
            raise EmptyWindowError(self.start, self.end)

    def __str__(self) -> str:
        return f"{bound_text(self.start)} → {bound_text(self.end)}"

    @property
    def whole(self) -> bool:
        """Of whole numbers, not of instants."""
        return isinstance(self.start, int)

    @property
    def instants(self) -> tuple[datetime, datetime]:
        """Start and end, known to be instants.

        Raises:
            TypeError: They are whole numbers.
        """
        if isinstance(self.start, int) or isinstance(self.end, int):
            raise TypeError(f"{self} is an interval of whole numbers")
        return self.start, self.end

    @property
    def length(self) -> float:
        """How much lies inside: seconds, or whole numbers."""
        if isinstance(self.start, int) and isinstance(self.end, int):
            return float(self.end - self.start)
        start, end = self.instants
        return (end - start) / timedelta(seconds=1)

    def overlaps(self, other: Interval) -> bool:
        """Something lies in both. Intervals that only touch do not overlap."""
        return _before(self.start, other.end) and _before(other.start, self.end)

    def contains(self, other: Interval) -> bool:
        """All of the other lies in this one."""
        return not _before(other.start, self.start) and not _before(self.end, other.end)

    def intersection(self, other: Interval) -> Interval | None:
        """What lies in both, or None."""
        if not self.overlaps(other):
            return None
        if self.contains(other):
            return other
        start = other.start if _before(self.start, other.start) else self.start
        end = self.end if _before(self.end, other.end) else other.end
        return Interval(start, end)

    def halves(self, bound: Bound) -> tuple[Interval | None, Interval | None]:
        """What lies before a bound, and what lies at it and behind; None where nothing does."""
        if not _before(self.start, bound):
            return None, self
        if not _before(bound, self.end):
            return self, None
        return Interval(self.start, bound), Interval(bound, self.end)


def merge(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """The union: in order, none overlapping or touching another."""
    merged: list[Interval] = []
    for interval in sorted(intervals, key=attrgetter("start")):
        if not merged or _before(merged[-1].end, interval.start):
            merged.append(interval)
        elif _before(merged[-1].end, interval.end):
            merged[-1] = Interval(merged[-1].start, interval.end)
    return tuple(merged)


def missing(window: Interval, covered: Iterable[Interval]) -> tuple[Interval, ...]:
    """What of the window is in none of the covered intervals: in order, none touching another."""
    gaps: list[Interval] = []
    position = window.start
    for interval in merge(covered):
        part = interval.intersection(window)
        if part is None:
            continue
        if _before(position, part.start):
            gaps.append(Interval(position, part.start))
        position = part.end
    if _before(position, window.end):
        gaps.append(Interval(position, window.end))
    return tuple(gaps)


def intersect(one: Iterable[Interval], other: Iterable[Interval]) -> tuple[Interval, ...]:
    """What lies in both unions: in order, none touching another."""
    left, right = merge(one), merge(other)
    both: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        if part := left[i].intersection(right[j]):
            both.append(part)
        if _before(left[i].end, right[j].end):
            i += 1
        else:
            j += 1
    return tuple(both)


def meetings(ranges: Sequence[Interval], intervals: Iterable[Interval]) -> Iterator[tuple[int, int]]:
    """Which range overlaps which interval, as pairs of their positions.

    Each interval costs two bisections, and each pair one step.

    Args:
        ranges: In order, none overlapping another.
        intervals: In any order; pairs come in theirs.
    """
    starts: list[Any] = [each.start for each in ranges]
    ends: list[Any] = [each.end for each in ranges]
    for position, interval in enumerate(intervals):
        for number in range(bisect_right(ends, interval.start), bisect_left(starts, interval.end)):
            yield number, position


def bound_text(bound: Bound) -> str:
    """A bound as identity and output spell it: UTC with ``+00:00``, microseconds only if not zero."""
    return bound.isoformat() if isinstance(bound, datetime) else str(bound)


def plain_bound(bound: Bound) -> str | int:
    """A bound for JSON: a whole number as such, an instant as text."""
    return bound if isinstance(bound, int) else bound_text(bound)


def stored_bound(bound: Bound, name: str = "start") -> datetime:
    """A bound as the ledger keeps it: the number ``n`` as 1970-01-01T00:00Z and ``n`` microseconds.

    Args:
        bound: An instant, which stays, or a whole number.
        name: ``start`` or ``end``, for messages.

    Raises:
        BoundFormatError: No datetime carries the number.
    """
    if isinstance(bound, datetime):
        return bound
    if not SMALLEST_NUMBER <= bound <= LARGEST_NUMBER:
        raise BoundFormatError(
            name,
            bound,
            f"is outside {SMALLEST_NUMBER} to {LARGEST_NUMBER}, the whole numbers that the ledger can keep",
            "pass a window within them",
        )
    return _ZERO + timedelta(microseconds=bound)


def restored_bound(instant: datetime, *, whole: bool) -> Bound:
    """What `stored_bound` has made of a bound, turned back."""
    return (instant - _ZERO) // timedelta(microseconds=1) if whole else instant


def _before(first: Any, second: Any) -> bool:
    # Any: the two kinds of bounds are never compared with each other, which mypy cannot know.
    return bool(first < second)

"""What of a plan other backfills of its source have done already (pure).

Coverage goes by intervals, whatever window and chunk size they were cut from: a day that was loaded as 24
hours is covered. It has one dimension, time (or the whole number): a backfill that loaded only some of the
plan's resources covers nothing of the others, so whoever reads the ledger passes the chunks of those that
loaded them all, or classifies resource by resource.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_backfill.engine.bounds import Bound
from airflow_provider_backfill.engine.intervals import Interval, intersect, meetings, missing
from airflow_provider_backfill.engine.plan import BackfillPlan, Chunk, interval_label
from airflow_provider_backfill.exceptions import BoundFormatError

#: A text for people names at most so many ranges.
_MOST_RANGES = 3


class Standing(StrEnum):
    """How a planned chunk stands to what other backfills have done."""

    DUE = "due"
    COVERED = "covered"
    PARTLY = "partly covered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A chunk that a backfill has completed, by loading it or because a person said so.

    One that was only found covered adds nothing. A version that is being replaced still stands, and counts.

    Args:
        backfill_id: The backfill.
        chunk_id: The chunk within it, six digits.
        interval: What it covers.
    """

    backfill_id: str
    chunk_id: str
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCoverage:
    """How one planned chunk stands. `classify` makes it.

    Args:
        chunk: The planned chunk.
        others: The completed chunks of other backfills that overlap it, in order, as they are.
        missing: The parts of the chunk in none of them, in order, none touching another.
    """

    chunk: Chunk
    others: tuple[Completed, ...]
    missing: tuple[Interval, ...]

    @property
    def standing(self) -> Standing:
        if not self.others:
            return Standing.DUE
        return Standing.PARTLY if self.missing else Standing.COVERED

    @property
    def covered(self) -> tuple[Interval, ...]:
        """The parts of the chunk that are done, in order, none touching another."""
        return intersect([self.chunk.interval], (other.interval for other in self.others))

    @property
    def backfills(self) -> tuple[str, ...]:
        """The ids of the backfills that have done some of it, in the order of what they did."""
        return tuple(dict.fromkeys(other.backfill_id for other in self.others))

    @property
    def covered_by(self) -> str | None:
        """The same as the ledger's column keeps it: with commas; None if there are none."""
        return ",".join(self.backfills) or None

    def reason(self, timezone: str = "UTC") -> str:
        """Why the chunk is to run, or is not, in one line.

        Args:
            timezone: Canonical name of the zone that times are told in; default ``UTC``.
        """
        match self.standing:
            case Standing.DUE:
                return "due: no backfill has loaded it"
            case Standing.COVERED:
                return f"covered by {', '.join(self.backfills)}"
            case Standing.PARTLY:
                return (
                    f"partly covered: {', '.join(self.backfills)} loaded {ranges(self.covered, timezone)}, "
                    f"missing {ranges(self.missing, timezone)}"
                )


def classify(plan: BackfillPlan, completed: Iterable[Completed]) -> tuple[ChunkCoverage, ...]:
    """Tell of each chunk of a plan whether it is due, covered or partly covered, and by whom.

    It takes O((n + m) log(n + m)) for n chunks and m completed ones, and a step for each overlap of the two.

    Args:
        plan: The plan.
        completed: What backfills of the same source have completed, in any order; also chunks outside the
            window, and the plan's own, which are left out.

    Returns:
        One each chunk, in order.

    Raises:
        BoundFormatError: Some are of whole numbers where the plan is of times, or the reverse.
    """
    others = sorted(
        (other for other in completed if other.backfill_id != plan.backfill_id),
        key=lambda other: (other.interval.start, other.interval.end, other.backfill_id),
    )
    check_kind(plan.window.start, others)
    intervals = [other.interval for other in others]
    chunks = [chunk.interval for chunk in plan.chunks]
    met: list[list[Completed]] = [[] for _ in chunks]
    for number, position in meetings(chunks, intervals):
        met[number].append(others[position])
    gaps = missing(plan.window.interval, intervals)
    left: list[list[Interval]] = [[] for _ in chunks]
    for number, position in meetings(chunks, gaps):
        part = chunks[number].intersection(gaps[position])
        left[number].extend([part] if part else [])
    return tuple(
        ChunkCoverage(chunk=chunk, others=tuple(met[number]), missing=tuple(left[number]))
        for number, chunk in enumerate(plan.chunks)
    )


def check_kind(start: Bound, completed: Iterable[Completed]) -> None:
    """Refuse to compare times with whole numbers: the same cursor may have been read as either.

    Raises:
        BoundFormatError: A window's start and a completed chunk are not of one kind.
    """
    whole = isinstance(start, int)
    for other in completed:
        if other.interval.whole != whole:
            kinds = ("whole number", "times") if whole else ("time", "whole numbers")
            raise BoundFormatError(
                "start",
                start,
                f"is a {kinds[0]}, and backfill {other.backfill_id} of this source went by {kinds[1]}",
                "pass the same kind, give this source another name (source_name), or "
                "load into another dataset",
            )


def ranges(intervals: Iterable[Interval], timezone: str = "UTC") -> str:
    """Intervals for people, in the time zone; of many the first three, and how many more."""
    labels = [interval_label(interval, timezone) for interval in intervals]
    more = len(labels) - _MOST_RANGES
    return ", ".join(labels[:_MOST_RANGES]) + (f" and {more} more" if more > 0 else "")

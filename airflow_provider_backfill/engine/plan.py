"""Plans: a window's chunks with their identity, which never changes (pure).

The ids are shared with dlt-ops 0.1.0, so that either tool resumes the other's backfill::

    backfill_id = sha256("<source>|<from>|<to>|<chunk size>")[:16]
    run_id      = sha256("<source>|<chunk from>|<chunk to>")[:16]

with times as ``isoformat()`` in UTC. A time zone other than UTC joins the chunk size (``1d@Europe/Berlin``),
a selection of resources joins the source (``web_events:clicks,views``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_backfill.engine.intervals import Interval, bound_text
from airflow_provider_backfill.engine.timezones import day_start, is_ambiguous, local_wall, zone
from airflow_provider_backfill.engine.window import ChunkSize, Window, calendar_step, many_chunks


def source_key(name: str, resources: Iterable[str] | None = None) -> str:
    """A source's part of identity: its name, and the resources selected from it, sorted, if not all are."""
    selected = ",".join(sorted(set(resources or ())))
    return f"{name}:{selected}" if selected else name


def size_key(window: Window, size: ChunkSize) -> str:
    """A chunk size's part of identity, which the ledger stores: ``1d``, or ``1d@Europe/Berlin``."""
    return str(size) if window.timezone == "UTC" else f"{size}@{window.timezone}"


def is_whole(chunk_size: str) -> bool:
    """A chunk size as the ledger stores it is a whole number, and so are the bounds beside it."""
    return chunk_size.isdecimal()


def timezone_of(chunk_size: str) -> str:
    """The time zone in a chunk size as the ledger stores it."""
    return chunk_size.partition("@")[2] or "UTC"


def backfill_id(source: str, window: Window, size: ChunkSize) -> str:
    """The id of a backfill: the same inputs, spelled anyhow, give the same 16 hexadecimal digits."""
    return _digest(source, bound_text(window.start), bound_text(window.end), size_key(window, size))


def run_id(source: str, interval: Interval) -> str:
    """The id of a chunk, 16 hexadecimal digits; the same in every backfill that cuts this very interval."""
    return _digest(source, bound_text(interval.start), bound_text(interval.end))


def _digest(*parts: str) -> str:
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One chunk of a plan.

    Args:
        index: Its position, from 0.
        interval: What it covers.
        run_id: Its stable id.
    """

    index: int
    interval: Interval
    run_id: str

    @property
    def chunk_id(self) -> str:
        """Its id within the backfill, six digits from ``000000``."""
        return f"{self.index:06d}"

    @property
    def number(self) -> int:
        """Its position for people, from 1."""
        return self.index + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillPlan:
    """A window's chunks, in order. `make_plan` makes it.

    Args:
        source: The source's part of identity, see `source_key`.
        window: What the backfill covers.
        size: How long a chunk is.
        backfill_id: The backfill's stable id.
        chunks: Consecutive chunks that cover the window exactly.
        warn_chunks: `warning` speaks up if there are more; default 1,000.
        selected: Names of the resources that the source selected; empty where nobody has looked.
    """

    source: str
    window: Window
    size: ChunkSize
    backfill_id: str
    chunks: tuple[Chunk, ...]
    warn_chunks: int = 1_000
    selected: tuple[str, ...] = ()

    @property
    def source_name(self) -> str:
        """The source without its selection of resources."""
        return self.source.partition(":")[0]

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources selected, in order; empty for all that the source selects by itself."""
        selected = self.source.partition(":")[2]
        return tuple(selected.split(",")) if selected else ()

    @property
    def chunk_size(self) -> str:
        """The chunk size as the ledger stores it."""
        return size_key(self.window, self.size)

    @property
    def warning(self) -> str | None:
        """What to tell a person about the number of chunks, if anything."""
        return many_chunks(len(self.chunks), self.warn_chunks)

    def label(self, interval: Interval) -> str:
        """An interval for people, in the window's time zone."""
        return interval_label(interval, self.window.timezone)


def grouped(chunks: Iterable[Chunk], size: int) -> list[tuple[Chunk, ...]]:
    """Cut chunks, in either order, into groups of at most ``size`` that are consecutive."""
    groups: list[list[Chunk]] = []
    for chunk in chunks:
        group = groups[-1] if groups else []
        if group and len(group) < size and abs(chunk.index - group[-1].index) == 1:
            group.append(chunk)
        else:
            groups.append([chunk])
    return [tuple(group) for group in groups]


def span(chunks: Sequence[Chunk]) -> Interval:
    """What consecutive chunks, in either order, cover together."""
    return Interval(
        min(chunk.interval.start for chunk in (chunks[0], chunks[-1])),
        max(chunk.interval.end for chunk in (chunks[0], chunks[-1])),
    )


def make_plan(
    source: str,
    window: Window,
    size: ChunkSize | str | int,
    *,
    max_chunks: int = 10_000,
    warn_chunks: int = 1_000,
) -> BackfillPlan:
    """Plan a backfill. Nothing is read or written.

    Args:
        source: The source's part of identity, see `source_key`.
        window: What to cover.
        size: How long a chunk is: ``<N>s|m|h|d|w|mo``, or a whole number for a window of whole numbers.
        max_chunks: More are refused, before any is built; default 10,000.
        warn_chunks: More are logged as a warning, which the plan keeps; default 1,000.

    Raises:
        ChunkSizeError: The size is not one, or does not fit the window.
        TooManyChunksError: There would be more than ``max_chunks``.
    """
    size = ChunkSize.parse(size)
    intervals = window.split(size, max_chunks, warn_chunks)
    return BackfillPlan(
        source=source,
        window=window,
        size=size,
        backfill_id=backfill_id(source, window, size),
        chunks=tuple(
            Chunk(index=index, interval=interval, run_id=run_id(source, interval))
            for index, interval in enumerate(intervals)
        ),
        warn_chunks=warn_chunks,
    )


def exact_length(interval: Interval, timezone: str = "UTC") -> str:
    """The length in its largest exact unit: ``1d``, ``6h``, ``90m``, ``45s``, or ``100`` for whole numbers.

    Days are those of the time zone: one that has 23 hours is ``1d``, and 24 hours around it are ``24h``. As a
    chunk size it gives one chunk, the interval itself; for that, a rest below a second counts as a second.

    Args:
        interval: What to measure.
        timezone: Canonical name of the zone; default ``UTC``.
    """
    if isinstance(interval.start, int) and isinstance(interval.end, int):
        return str(interval.end - interval.start)
    start, end = interval.instants
    wall = local_wall(start, timezone)
    days = (local_wall(end, timezone).date() - wall.date()).days
    if days > 0 and calendar_step(wall, timezone, ChunkSize(days, "d"), 1) == end:
        return f"{days}d"
    seconds = -((start - end) // timedelta(seconds=1))
    for unit, length in (("h", 3_600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def interval_label(interval: Interval, timezone: str = "UTC") -> str:
    """An interval for people, in the time zone: whole days as dates, else times.

    ``2026-01-03 → 2026-01-04``, ``2026-01-03T06:00 → 2026-01-03T12:00``. Offsets are added where clocks show
    one of the times twice: ``2024-11-03T01:00-04:00 → 2024-11-03T01:00-05:00``.
    """
    if interval.whole:
        return str(interval)
    clocks = [instant.astimezone(zone(timezone)) for instant in interval.instants]
    if all(day_start(clock.date(), timezone) == clock for clock in clocks):
        return " → ".join(clock.date().isoformat() for clock in clocks)
    if not any(is_ambiguous(instant, timezone) for instant in interval.instants):
        clocks = [clock.replace(tzinfo=None) for clock in clocks]
    return " → ".join(_short(clock) for clock in clocks)


def _short(time: datetime) -> str:
    return time.isoformat(timespec="auto" if time.second or time.microsecond else "minutes")

"""How fast a backfill goes and how long what is left of it takes, from its latest attempts (pure).

What chunks bring is set against the time in which any of them ran, so that neither a pause nor a night
between two runs slows the figure, and chunks that run side by side count as often as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import nlargest

from airflow_provider_backfill._text import span
from airflow_provider_backfill.engine.intervals import Interval, merge
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus

#: How many of the latest attempts count: enough for a steady figure, few enough to follow a change.
LATEST = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A chunk that an attempt has completed.

    Args:
        length: How much of the window it covers: seconds, or whole numbers.
        started: When the attempt began.
        completed: When it ended.
        rows: How many it loaded; None if unknown.
    """

    length: float
    started: datetime
    completed: datetime
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a backfill goes. `pace` makes it. ``str()`` is one line for people.

    Args:
        chunks: How many attempts this is drawn from.
        busy_seconds: For how long any of them ran.
        chunks_per_minute: How many were completed a minute of that.
        rows_per_second: How many rows they loaded a second of that; None if unknown.
        seconds_left: How long what is left takes at this pace; 0 if nothing is left.
    """

    chunks: int
    busy_seconds: float
    chunks_per_minute: float
    rows_per_second: float | None
    seconds_left: float

    def __str__(self) -> str:
        parts = [f"{self.chunks_per_minute:,.1f} chunks/min"]
        if self.rows_per_second is not None:
            digits = 0 if self.rows_per_second >= 10 else 1
            parts.append(f"{self.rows_per_second:,.{digits}f} rows/s")
        if self.seconds_left:
            parts.append(f"about {span(self.seconds_left)} left")
        return ", ".join(parts)


def pace(finished: Iterable[Finished], left: float) -> Pace | None:
    """Tell how fast a backfill goes; None where no attempt of it took any time yet.

    Args:
        finished: Its completed attempts, in any order; the latest `LATEST` of them count. Chunks that other
            backfills have loaded, or that a person marked as done, are none.
        left: The length of all that is not completed, attempts in flight included: seconds, or whole numbers.
    """
    latest = nlargest(LATEST, (each for each in finished if each.completed > each.started), key=_completed)
    if not latest:
        return None
    busy = _busy_seconds(latest)
    rows = [each.rows for each in latest if each.rows is not None]
    return Pace(
        chunks=len(latest),
        busy_seconds=busy,
        chunks_per_minute=60 * len(latest) / busy,
        rows_per_second=sum(rows) / busy if len(rows) == len(latest) else None,
        seconds_left=left * busy / sum(each.length for each in latest),
    )


def pace_of(rows: Iterable[ChunkRow]) -> Pace | None:
    """The pace of one backfill, of which all chunks are given; None as of `pace`."""
    finished: list[Finished] = []
    left = 0.0
    for row in rows:
        if row.status is not ChunkStatus.COMPLETED:
            left += row.interval.length
        elif row.started_at and row.completed_at and not row.covered_by:
            finished.append(
                Finished(
                    length=row.interval.length,
                    started=row.started_at,
                    completed=row.completed_at,
                    rows=row.records_loaded,
                )
            )
    return pace(finished, left)


def _completed(each: Finished) -> datetime:
    return each.completed


def _busy_seconds(finished: Sequence[Finished]) -> float:
    """For how long any of them ran."""
    ran = merge(Interval(each.started, each.completed) for each in finished)
    return sum((end - start) / timedelta(seconds=1) for start, end in (each.instants for each in ran))

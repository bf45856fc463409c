"""How long a backfill will take and how much it will load, from what its source took before (pure).

Chunks of any length are compared by what they took a second of interval (or a whole number of it), and the
median and the 90th percentile of that are scaled to the chunks to come. What an attempt costs at any length
is in there, so chunks much shorter than those of the history take longer than the estimate says, and longer
ones less.
"""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_backfill._text import span
from airflow_provider_backfill.engine.intervals import Interval

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a completed chunk took.

    Args:
        interval: What it covers.
        seconds: From the start of the attempt that completed it to its end.
        rows: How many it loaded; None if unknown.
        size: How many bytes it loaded; None if unknown.
    """

    interval: Interval
    seconds: float
    rows: int | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A usual value and a high one.

    Args:
        median: Half of the history was below.
        high: The 90th percentile: nine tenths of the history were below.
    """

    median: float
    high: float

    def times(self, factor: float) -> Spread:
        return Spread(median=self.median * factor, high=self.high * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What chunks to come will take. `estimate` makes it. ``str()`` is one line for people.

    ``high`` is the value if every chunk were as slow, or as large, as one in ten has been.

    Args:
        chunks: How many are to run.
        concurrency: How many run at once.
        history: How many completed chunks this is drawn from; 0 for none.
        chunk_seconds: How long a chunk takes that is of the median length of those to run; None without
            history or chunks.
        chunk_rows: How many rows such a chunk loads; None likewise, or if unknown.
        seconds: How long all take, ``concurrency`` at once, each taken up as soon as another is done; None
            without history.
        rows: How many rows all load; None if unknown.
        size: How many bytes all load; None if unknown.
    """

    chunks: int
    concurrency: int
    history: int
    chunk_seconds: Spread | None = None
    chunk_rows: Spread | None = None
    seconds: Spread | None = None
    rows: Spread | None = None
    size: Spread | None = None

    def __str__(self) -> str:
        if not self.chunks:
            return "nothing to run"
        if self.seconds is None:
            return "no history"
        parts = [f"about {_range(span(self.seconds.median), span(self.seconds.high))}"]
        if self.concurrency > 1:
            parts[0] += f", {self.concurrency} at once"
        if self.rows:
            parts.append(f"{_range(_count(self.rows.median), _count(self.rows.high))} rows")
        if self.size:
            parts.append(_range(_bytes(self.size.median), _bytes(self.size.high)))
        return "; ".join([*parts, f"from {self.history} chunk{'s' if self.history > 1 else ''}"])


def estimate(chunks: Iterable[Interval], history: Iterable[Measured], *, concurrency: int = 1) -> Estimate:
    """Estimate what chunks will take.

    Args:
        chunks: What is to run, in the order in which it does.
        history: Completed chunks of the same source, in any order. Those of times say nothing about whole
            numbers, nor the reverse, and are left out.
        concurrency: How many run at once, from 1; default 1.

    Raises:
        ValueError: ``concurrency`` is less than 1.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency {concurrency} is less than 1; pass how many chunks run at once")
    intervals = list(chunks)
    whole = bool(intervals) and intervals[0].whole
    known = [(each.interval.length, each) for each in history if each.interval.whole == whole]
    if not intervals or not known:
        return Estimate(chunks=len(intervals), concurrency=concurrency, history=len(known))
    lengths = [interval.length for interval in intervals]
    total, usual = sum(lengths), statistics.median(lengths)
    pace = _spread([each.seconds / length for length, each in known])
    rows = _spread([each.rows / length for length, each in known if each.rows is not None])
    size = _spread([each.size / length for length, each in known if each.size is not None])
    return Estimate(
        chunks=len(intervals),
        concurrency=concurrency,
        history=len(known),
        chunk_seconds=pace and pace.times(usual),
        chunk_rows=rows and rows.times(usual),
        seconds=pace and pace.times(_busiest(lengths, concurrency)),
        rows=rows and rows.times(total),
        size=size and size.times(total),
    )


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    # From one value alone, Python 3.11 refuses to make quantiles.
    high = statistics.quantiles(values, n=10, method="inclusive")[8] if len(values) > 1 else values[0]
    return Spread(median=statistics.median(values), high=high)


def _busiest(lengths: Sequence[float], concurrency: int) -> float:
    """How much the worker has done that is done last, if each next chunk goes to whoever is free first."""
    workers = [0.0] * min(concurrency, len(lengths))
    for length in lengths:
        heapq.heapreplace(workers, workers[0] + length)
    return max(workers)


def _range(usual: str, high: str) -> str:
    return usual if usual == high else f"{usual} to {high}"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _bytes(number: float) -> str:
    """In the largest unit that it has one of: ``512 B``, ``3.1 MB``."""
    power = 0
    while number >= 1000 and power < len(_BYTE_UNITS) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.1f} {_BYTE_UNITS[power]}" if power else f"{number:.0f} B"

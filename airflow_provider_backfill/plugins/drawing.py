"""Small plots as the numbers of an inline SVG (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_backfill.engine.intervals import Interval

#: How many bars a plot has at most; more chunks share one.
MOST_BARS = 150
#: Height and width of a plot, in the units of its own.
HEIGHT, WIDTH = 60, 600
#: Width of a strip; ranges closer than one unit are drawn as one.
STRIP = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Bars, one a chunk or one for several.

    Args:
        path: The ``d`` of an SVG path in a box of `WIDTH` by `HEIGHT`.
        highest: The value that fills the height.
        median: Half of the values are below.
        count: How many chunks have a value.
        per_bar: How many chunks share a bar, which shows the highest.
    """

    path: str
    highest: float
    median: float
    count: int
    per_bar: int


def plot(values: Sequence[float | None]) -> Plot | None:
    """Draw a value for each chunk, in order; None where none has one."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    per_bar = -(-len(values) // MOST_BARS)
    groups = [values[at : at + per_bar] for at in range(0, len(values), per_bar)]
    tops = [max((value for value in group if value is not None), default=None) for group in groups]
    highest = known[-1] or 1.0
    step = WIDTH / len(groups)
    parts = [
        # A value of nothing is still seen.
        f"M{number * step:.1f} {HEIGHT}v-{max(1.0, top / highest * HEIGHT):.1f}h{step * 0.8:.1f}V{HEIGHT}z"
        for number, top in enumerate(tops)
        if top is not None
    ]
    return Plot(
        path="".join(parts),
        highest=known[-1],
        median=known[len(known) // 2],
        count=len(known),
        per_bar=per_bar,
    )


def strip(extent: Interval, intervals: Iterable[Interval]) -> list[tuple[float, float]]:
    """Where intervals lie within an extent: left and width, in the units of a strip, each at least one wide.

    Ranges that nobody could tell apart are one.
    """
    drawn: list[tuple[float, float]] = []
    for interval in intervals:
        left = Interval(extent.start, interval.start).length if interval.start != extent.start else 0.0
        start, width = (length / extent.length * STRIP for length in (left, interval.length))
        if drawn and start < drawn[-1][0] + drawn[-1][1] + 1:
            drawn[-1] = drawn[-1][0], max(drawn[-1][1], start + width - drawn[-1][0])
        else:
            drawn.append((start, max(1.0, width)))
    return [(round(start, 1), round(width, 1)) for start, width in drawn]

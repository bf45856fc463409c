"""The chunks of a backfill as a calendar: thousands of them by hour, day, week, month or year (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from statistics import median_low
from typing import Any

from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.overview import Condition, Piece
from airflow_provider_backfill.engine.timezones import zone

#: So many cells are still told apart at a glance; beyond them chunks are grouped.
MOST_CELLS = 500
#: So many may be asked for.
LIMIT = 2_000
#: So many stand side by side on a narrow screen; more wrap.
_WIDEST = 31
#: Fewer in a row than this are a list and no calendar.
_NARROWEST = 7
#: What a group of chunks shows: whoever looks wants to know of these first.
_LOUDEST = (
    Condition.FAILED,
    Condition.LAPSED,
    Condition.HELD,
    Condition.PENDING,
    Condition.COMPLETED,
    Condition.COVERED,
)


class Group(StrEnum):
    """What one cell stands for."""

    CHUNK = "chunk"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A chunk, or consecutive ones that begin in the same hour, day, week, month or year.

    Args:
        first: Position of the first chunk, from 1.
        last: Position of the last one.
        interval: What they cover.
        counts: How many stand how; only conditions that occur.
        rows: How many they loaded.
        seconds: How long their attempts took, in all.
    """

    first: int
    last: int
    interval: Interval
    counts: Mapping[Condition, int]
    rows: int
    seconds: float

    @property
    def condition(self) -> Condition:
        """What it shows: of several conditions the one that asks for attention first."""
        return next(condition for condition in _LOUDEST if condition in self.counts)

    @property
    def done(self) -> float:
        """Which part of the chunks is completed, from 0 to 1."""
        done = self.counts.get(Condition.COMPLETED, 0) + self.counts.get(Condition.COVERED, 0)
        return done / (self.last - self.first + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the calendar.

    Args:
        label: The day, month, year and so on that its cells are of; empty for whole numbers.
        indent: How many cells are missing before the first, so that equal times stand below each other.
        cells: The cells, in order.
    """

    label: str
    indent: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The calendar. `lay_out` makes it.

    Args:
        group: What a cell stands for.
        choices: What it may stand for so that something is left to tell apart.
        rows: Its lines, in order.
    """

    group: Group
    choices: tuple[Group, ...]
    rows: tuple[Row, ...]

    @property
    def cells(self) -> int:
        return sum(len(row.cells) for row in self.rows)


def lay_out(pieces: Sequence[Piece], timezone: str = "UTC", group: Group | None = None) -> Grid:
    """Lay the chunks of one backfill out.

    Args:
        pieces: All of them, in order; at least one.
        timezone: Canonical zone of the window; default ``UTC``.
        group: What a cell stands for; default None, the finest with at most `MOST_CELLS` cells. One that is
            finer than the chunks, too fine for `LIMIT`, or too coarse to tell anything apart, counts as not
            given.
    """
    if pieces[0].interval.whole:
        return _numbered(pieces)
    starts = [piece.interval.instants[0].astimezone(zone(timezone)) for piece in pieces]
    keys: dict[Group, list[Any]] = {
        unit: [_key(start, unit) for start in starts] for unit in Group if unit is not Group.CHUNK
    }
    sizes = {Group.CHUNK: len(pieces), **{unit: len(set(values)) for unit, values in keys.items()}}
    useful = [unit for unit, size in sizes.items() if unit is Group.CHUNK or 1 < size < len(pieces)]
    choices = [unit for unit in useful if sizes[unit] <= LIMIT] or useful[-1:]
    if group not in choices:
        group = next((unit for unit in choices if sizes[unit] <= MOST_CELLS), choices[-1])
    if group is Group.CHUNK:
        cells = [_cell([piece]) for piece in pieces]
    else:
        numbered = zip(keys[group], pieces, strict=True)
        cells = [
            _cell([piece for _, piece in found]) for _, found in groupby(numbered, key=lambda pair: pair[0])
        ]
    return Grid(group=group, choices=tuple(choices), rows=_rows(cells, timezone))


def _numbered(pieces: Sequence[Piece]) -> Grid:
    """Whole numbers have no calendar: consecutive chunks, as many a cell as are needed."""
    size = -(-len(pieces) // MOST_CELLS)
    cells = [_cell(pieces[position : position + size]) for position in range(0, len(pieces), size)]
    return Grid(
        group=Group.CHUNK, choices=(Group.CHUNK,), rows=(Row(label="", indent=0, cells=tuple(cells)),)
    )


def _cell(pieces: Sequence[Piece]) -> Cell:
    return Cell(
        first=pieces[0].number,
        last=pieces[-1].number,
        interval=Interval(pieces[0].interval.start, pieces[-1].interval.end),
        counts=Counter(piece.condition for piece in pieces),
        rows=sum(piece.rows or 0 for piece in pieces),
        seconds=sum(piece.seconds or 0.0 for piece in pieces),
    )


def _key(local: datetime, group: Group) -> Any:
    """What the chunks of one cell have in common."""
    day = local.date()
    match group:
        case Group.HOUR:
            # An hour that clocks show twice is two.
            return day, local.hour, local.utcoffset()
        case Group.DAY:
            return day
        case Group.WEEK:
            return day - timedelta(days=day.weekday())
        case Group.MONTH:
            return day.year, day.month
        case _:
            return day.year


#: What a line of the calendar may be: how long it is at most, days, where it begins, and how it is called.
_LINES: tuple[tuple[float, Callable[[datetime], datetime], str], ...] = (
    (1 / 24, lambda wall: wall.replace(minute=0, second=0, microsecond=0), "%Y-%m-%d %H:00"),
    (1, lambda wall: _day(wall), "%Y-%m-%d"),
    (7, lambda wall: _day(wall) - timedelta(days=wall.weekday()), "%Y-%m-%d"),
    (31, lambda wall: _day(wall).replace(day=1), "%Y-%m"),
    (92, lambda wall: _day(wall).replace(month=1 + 3 * ((wall.month - 1) // 3), day=1), "%Y-%m"),
    (366, lambda wall: _day(wall).replace(month=1, day=1), "%Y"),
    # There is no year 0.
    (3_653, lambda wall: _day(wall).replace(year=max(1, wall.year // 10 * 10), month=1, day=1), "%Y"),
)


def _day(wall: datetime) -> datetime:
    return wall.replace(hour=0, minute=0, second=0, microsecond=0)


def _rows(cells: Sequence[Cell], timezone: str) -> tuple[Row, ...]:
    """The cells in lines of the longest unit that fits a narrow screen."""
    # Clocks, without their offset, are what a calendar is laid out by.
    walls = [cell.interval.instants[0].astimezone(zone(timezone)).replace(tzinfo=None) for cell in cells]
    step = median_low(each.interval.length for each in cells)
    widths = [days * 86_400 / step for days, _, _ in _LINES]
    best = max((number for number, width in enumerate(widths) if width <= _WIDEST), default=0)
    if widths[best] < _NARROWEST and best + 1 < len(_LINES):
        best += 1
    _, begin, label = _LINES[best]
    found = [
        (start, [cell for _, cell in members])
        for start, members in groupby(zip(walls, cells, strict=True), key=lambda pair: begin(pair[0]))
    ]
    # Only the first line begins in its middle: windows have no holes. Lines that wrap have no columns.
    late = (walls[0] - found[0][0]) / timedelta(seconds=step)
    indent = round(late) if len(found) > 1 and widths[best] <= _WIDEST else 0
    return tuple(
        Row(label=start.strftime(label), indent=0 if number else indent, cells=tuple(members))
        for number, (start, members) in enumerate(found)
    )

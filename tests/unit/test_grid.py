from __future__ import annotations

import pytest

from airflow_provider_backfill.engine.grid import LIMIT, MOST_CELLS, Group, lay_out
from airflow_provider_backfill.engine.overview import Condition, Piece
from airflow_provider_backfill.engine.window import ChunkSize, Interval, Window

pytestmark = pytest.mark.unit

MANY = 10**6


def pieces(start: str, end: str, size: str, timezone: str = "UTC", **conditions: Condition) -> list[Piece]:
    """The chunks of a window, completed but for some, which are named ``c3`` and so on."""
    intervals = Window.parse(start, end, timezone).split(ChunkSize.parse(size), MANY, MANY)
    return [
        Piece(
            number=number,
            interval=interval,
            condition=conditions.get(f"c{number}", Condition.COMPLETED),
            seconds=2.0,
            rows=10,
        )
        for number, interval in enumerate(intervals, 1)
    ]


def lines(grid) -> list[tuple[str, int, int]]:
    return [(row.label, row.indent, len(row.cells)) for row in grid.rows]


def test_few_chunks_are_a_cell_each():
    grid = lay_out(pieces("2026-01-01", "2026-01-06", "1d", c2=Condition.FAILED))
    assert (grid.group, grid.cells) == (Group.CHUNK, 5)
    assert [cell.condition for row in grid.rows for cell in row.cells][:3] == [
        Condition.COMPLETED,
        Condition.FAILED,
        Condition.COMPLETED,
    ]


@pytest.mark.parametrize(
    ("start", "end", "size", "expected"),
    [
        # Days below each other by the day of the month, as in a calendar.
        ("2026-02-10", "2026-04-03", "1d", [("2026-02", 9, 19), ("2026-03", 0, 31), ("2026-04", 0, 2)]),
        (
            "2026-01-01T22:00Z",
            "2026-01-03T01:00Z",
            "1h",
            [("2026-01-01", 22, 2), ("2026-01-02", 0, 24), ("2026-01-03", 0, 1)],
        ),
        # 2026-01-05 is a Monday.
        ("2026-01-06", "2026-01-13", "6h", [("2026-01-05", 4, 24), ("2026-01-12", 0, 4)]),
        ("2025-11-01", "2026-03-01", "1mo", [("2025", 10, 2), ("2026", 0, 2)]),
        (
            "2026-01-01T00:00Z",
            "2026-01-01T02:00Z",
            "5m",
            [("2026-01-01 00:00", 0, 12), ("2026-01-01 01:00", 0, 12)],
        ),
        # Four an hour are no calendar: a day, which wraps.
        ("2026-01-01T06:00Z", "2026-01-02T12:00Z", "15m", [("2026-01-01", 0, 72), ("2026-01-02", 0, 48)]),
    ],
)
def test_cells_stand_in_lines_of_a_calendar(start, end, size, expected):
    assert lines(lay_out(pieces(start, end, size))) == expected


def test_days_are_those_of_the_windows_zone():
    grid = lay_out(pieces("2026-03-01", "2026-05-01", "1d", "Europe/Berlin"), "Europe/Berlin")
    assert lines(grid) == [("2026-03", 0, 31), ("2026-04", 0, 30)]


@pytest.mark.parametrize(
    ("start", "end", "size", "group"),
    [
        ("2025-01-01T00:00Z", "2026-02-21T16:00Z", "1h", Group.DAY),
        ("2000-01-01", "2027-05-19", "1d", Group.MONTH),
        ("2026-01-01T00:00Z", "2026-01-07T22:40Z", "1m", Group.HOUR),
        ("1990-01-01", "2027-01-01", "6h", Group.MONTH),
        ("1800-01-01", "2026-01-01", "1w", Group.YEAR),
    ],
)
def test_thousands_are_grouped_by_the_finest_unit_that_stays_legible(start, end, size, group):
    grid = lay_out(pieces(start, end, size))
    assert grid.group is group
    assert grid.cells <= MOST_CELLS
    covered = [number for row in grid.rows for cell in row.cells for number in (cell.first, cell.last)]
    assert covered[0] == 1
    assert all(before + 1 == after for before, after in zip(covered[1:-1:2], covered[2::2], strict=True))


def test_a_group_shows_what_asks_for_attention_and_how_much_is_done():
    grid = lay_out(
        pieces("2026-01-01T00:00Z", "2026-01-03T00:00Z", "1h", c3=Condition.PENDING, c4=Condition.FAILED),
        group=Group.DAY,
    )
    first, second = grid.rows[0].cells
    assert (first.first, first.last, first.condition) == (1, 24, Condition.FAILED)
    assert first.counts == {Condition.COMPLETED: 22, Condition.PENDING: 1, Condition.FAILED: 1}
    assert first.done == pytest.approx(22 / 24)
    assert (first.rows, first.seconds) == (240, 48)
    assert (second.condition, second.done) == (Condition.COMPLETED, 1)


def test_only_groups_that_tell_something_apart_are_offered():
    days = pieces("2026-01-01", "2026-03-01", "1d")
    assert lay_out(days).choices == (Group.CHUNK, Group.WEEK, Group.MONTH)
    assert lay_out(days, group=Group.HOUR).group is Group.CHUNK
    minutes = lay_out(pieces("2026-01-01T00:00Z", "2026-01-07T00:00Z", "1m"), group=Group.CHUNK)
    assert (minutes.group, minutes.choices) == (Group.HOUR, (Group.HOUR, Group.DAY, Group.WEEK))
    assert minutes.cells <= LIMIT


def test_an_hour_that_clocks_show_twice_is_two():
    night = pieces("2026-10-24T22:00Z", "2026-10-25T22:00Z", "5m", "Europe/Berlin")
    grid = lay_out(night, "Europe/Berlin", group=Group.HOUR)
    assert grid.cells == 24
    assert {cell.last - cell.first + 1 for row in grid.rows for cell in row.cells} == {12}


def test_whole_numbers_are_lined_up():
    chunks = [
        Piece(
            number=number,
            interval=Interval(number * 100, number * 100 + 100),
            condition=Condition.PENDING,
            seconds=None,
            rows=None,
        )
        for number in range(1, 1_002)
    ]
    grid = lay_out(chunks)
    assert lines(grid) == [("", 0, 334)]
    assert [(cell.first, cell.last) for cell in grid.rows[0].cells[-2:]] == [(997, 999), (1_000, 1_001)]

"""What the templates are given to say things with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from airflow_provider_backfill._text import span
from airflow_provider_backfill.engine.grid import Cell, Grid
from airflow_provider_backfill.engine.intervals import plain_bound
from airflow_provider_backfill.engine.overview import BackfillState, Condition
from airflow_provider_backfill.engine.plan import interval_label
from airflow_provider_backfill.engine.timezones import zone
from airflow_provider_backfill.plugins.documents import BackfillDocument

#: A sign for each state, so that colour is not all that tells them apart.
GLYPHS: Mapping[str, str] = {
    Condition.PENDING: "·",
    Condition.HELD: "▸",
    Condition.LAPSED: "!",
    Condition.FAILED: "×",
    Condition.COMPLETED: "✓",
    Condition.COVERED: "≈",
    BackfillState.RUNNING: "▸",
    BackfillState.PAUSED: "‖",
    BackfillState.CANCELLED: "⊘",
}
#: In a bar, what is done comes first.
_ORDER = (
    Condition.COMPLETED,
    Condition.COVERED,
    Condition.HELD,
    Condition.LAPSED,
    Condition.FAILED,
    Condition.PENDING,
)


@cache
def environment() -> Environment:
    """The templates. Whatever comes from a ledger is escaped, and a name that is not given is an error."""
    made = Environment(
        loader=PackageLoader("airflow_provider_backfill.plugins", "templates"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(glyphs=GLYPHS, span=span, parts=parts)
    return made


def parts(backfill: BackfillDocument) -> list[dict[str, Any]]:
    """The parts of a backfill's bar: how many chunks stand how, and how many before them."""
    made, start = [], 0
    for condition in _ORDER:
        count = backfill.counts[condition]
        if count:
            made.append({"condition": str(condition), "start": start, "count": count})
        start += count
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Which part of a list is shown, and the addresses of those beside it."""

    first: int
    last: int
    total: int
    before: str | None
    behind: str | None


class Links:
    """Addresses of the same page with another choice.

    Args:
        request: The one that the page answers.
    """

    def __init__(self, request: Request) -> None:
        self._query = dict(request.query_params)

    def with_query(self, **changes: Any) -> str:
        """The page with some choices changed; None drops one. Another choice begins with the first page."""
        wanted = (
            {**self._query, "offset": None, **changes}
            if set(changes) - {"chunk"}
            else {
                **self._query,
                **changes,
            }
        )
        kept = {name: str(value) for name, value in wanted.items() if value not in (None, "")}
        return f"?{urlencode(kept)}"

    def pages(self, offset: int, size: int, shown: int, total: int) -> Pages:
        """The part of a list that is shown."""
        before = self.with_query(offset=max(0, offset - size) or None) if offset else None
        behind = self.with_query(offset=offset + size) if offset + shown < total else None
        return Pages(
            first=min(offset + 1, total), last=offset + shown, total=total, before=before, behind=behind
        )


class Wording:
    """What is said of one backfill.

    Args:
        timezone: Canonical zone of its window.
        links: Addresses of its page.
    """

    def __init__(self, timezone: str, links: Links) -> None:
        self._timezone = timezone
        self._links = links

    @property
    def words(self) -> dict[str, Any]:
        """For the template, by name."""
        return {
            "cell_link": self.cell_link,
            "cell_text": self.cell_text,
            "label": self.label,
            "seconds": self.seconds,
            "share": self.share,
            "width": self.width,
            "with_query": self._links.with_query,
        }

    def cell_text(self, cell: Cell) -> str:
        """A cell for people who do not see it."""
        label = interval_label(cell.interval, self._timezone)
        if cell.first == cell.last:
            return f"Chunk {cell.first}, {label}: {cell.condition}"
        counts = ", ".join(f"{count} {condition}" for condition, count in cell.counts.items())
        return f"Chunks {cell.first} to {cell.last}, {label}: {counts}"

    def cell_link(self, cell: Cell) -> str:
        """To the chunk, or to those of the cell."""
        if cell.first == cell.last:
            return self._links.with_query(chunk=f"{cell.first - 1:06d}") + "#detail"
        start, end = plain_bound(cell.interval.start), plain_bound(cell.interval.end)
        return self._links.with_query(start=start, end=end, condition=None) + "#h-list"

    def share(self, cell: Cell) -> str:
        """A class that says how much of a cell is done, in quarters."""
        if cell.first == cell.last or not 0 < cell.done < 1:
            return ""
        return f" q{min(3, int(cell.done * 4))}"

    @staticmethod
    def width(grid: Grid) -> str:
        """A class that says how wide the calendar is, so that few cells are large on any screen."""
        widest = max(row.indent + len(row.cells) for row in grid.rows)
        return " few" if widest <= 12 else " some" if widest <= 24 else ""

    def label(self, bound: str | int) -> str:
        """A bound for people: a day where it is one, in the window's time zone."""
        if isinstance(bound, int) or bound.isdecimal():
            return str(bound)
        try:
            local = datetime.fromisoformat(bound)
        except ValueError:
            return bound
        if local.tzinfo is not None:
            local = local.astimezone(zone(self._timezone))
        if local - local.replace(hour=0, minute=0, second=0, microsecond=0) == timedelta(0):
            return local.date().isoformat()
        return local.replace(tzinfo=None).isoformat(timespec="auto" if local.second else "minutes")

    @staticmethod
    def seconds(value: float) -> str:
        """A length of time, short ones with a digit behind the point."""
        return f"{value:.1f} s" if value < 10 else span(value)

    @staticmethod
    def count(value: float) -> str:
        """A number of rows."""
        return f"{value:,.0f}"

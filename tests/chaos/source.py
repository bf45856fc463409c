"""What the scenarios load: a source of nested rows that anybody can compute again in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import dlt

from tests.chaos import plugin

NAME = "web_events"
DATASET = "web_raw"
TABLE = "page_views"
REFERENCE = "tests.chaos.source:web_events"

START = datetime(2026, 1, 1, tzinfo=UTC)
CHUNK = timedelta(hours=1)
CHUNKS = 4
END = START + CHUNKS * CHUNK
ROWS_A_CHUNK = 12

#: Where the forward pipeline began; its rows lie behind the window.
FORWARD = datetime(2026, 2, 1, tzinfo=UTC)
FORWARD_ROWS = 10
#: Rows that the forward pipeline brought in another version, with other nested rows: a merge replaces them.
OUTDATED = (3, 20, 45)

DISPOSITIONS: Mapping[str, Mapping[str, Any]] = {
    "append": {"write_disposition": "append"},
    "merge": {
        "write_disposition": {"disposition": "merge", "strategy": "delete-insert"},
        "primary_key": "id",
    },
    "upsert": {"write_disposition": {"disposition": "merge", "strategy": "upsert"}, "primary_key": "id"},
}

Row = dict[str, Any]
#: For each table how often each row of business values is in it; nested rows name the row they hang under.
Contents = dict[str, Counter[tuple[Any, ...]]]


def _row(number: int, at: datetime, version: str = "") -> Row:
    return {
        "id": number,
        "at": at,
        "kind": f"{version}{('view', 'click', 'buy')[number % 3]}",
        "amount": number * 7 % 101,
        "items": [
            {
                "sku": f"{version}{number}-{item}",
                "qty": item + 1,
                "tags": [f"{version}{number}-{item}-{tag}" for tag in range(item % 2 + 1)],
            }
            for item in range(number % 4)
        ],
    }


def history() -> list[Row]:
    """The rows of the window, evenly spread."""
    step = CHUNK / ROWS_A_CHUNK
    return [_row(number + 1, START + number * step) for number in range(CHUNKS * ROWS_A_CHUNK)]


def forward(disposition: str) -> list[Row]:
    """The rows that the forward pipeline had loaded before."""
    rows = [_row(1_000 + number, FORWARD + number * CHUNK) for number in range(FORWARD_ROWS)]
    if disposition != "append":
        rows += [_row(number, FORWARD + 2 * number * CHUNK, "old-") for number in OUTDATED]
    return rows


def expected(disposition: str, dataset: str) -> Contents:
    """What the tables hold once the window is covered."""
    rows = {row["id"]: row for row in (forward(disposition) if dataset == "forward" else [])}
    rows |= {row["id"]: row for row in history()}
    contents: Contents = {TABLE: Counter(), f"{TABLE}__items": Counter(), f"{TABLE}__items__tags": Counter()}
    for row in rows.values():
        contents[TABLE][row["id"], row["at"].isoformat(), row["kind"], row["amount"]] += 1
        for item in row["items"]:
            contents[f"{TABLE}__items"][row["id"], item["sku"], item["qty"]] += 1
            for tag in item["tags"]:
                contents[f"{TABLE}__items__tags"][row["id"], item["sku"], tag] += 1
    return contents


def records(number: int) -> int:
    """How many rows a chunk holds, nested ones included; chunks count from 0."""
    rows = history()[number * ROWS_A_CHUNK : (number + 1) * ROWS_A_CHUNK]
    return sum(1 + sum(1 + len(item["tags"]) for item in row["items"]) for row in rows)


@dlt.source(name=NAME)
def web_events(disposition: str = "append", since: str = "2020-01-01T00:00:00+00:00") -> Any:
    """The source, asked by the backfill for a chunk and by the forward pipeline for all after its bookmark.

    Args:
        disposition: A key of `DISPOSITIONS`.
        since: Where a pipeline without a bookmark begins.
    """
    began = datetime.fromisoformat(since)

    @dlt.resource(name=TABLE, **DISPOSITIONS[disposition])
    def page_views(
        at: Any = dlt.sources.incremental("at", initial_value=began),
    ) -> Iterator[list[Row]]:
        rows = [
            row
            for row in history() + forward(disposition)
            if at.start_value <= row["at"] and (at.end_value is None or row["at"] < at.end_value)
        ]
        half = len(rows) // 2
        yield rows[:half]
        plugin.midway()
        yield rows[half:]

    return page_views

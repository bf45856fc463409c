"""The dlt sources that are measured. Their rows are made before the clock starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import dlt
from dlt.extract.source import DltSource

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PAGE = 1_000


@cache
def rows_of(day: int, count: int, nested: bool) -> list[dict[str, Any]]:
    """The rows of one day, evenly over it. Half of their keys were the day before's."""
    start = FIRST + day * DAY
    step = DAY / count
    first = day * count // 2
    rows = []
    for number in range(count):
        row: dict[str, Any] = {
            "id": first + number,
            "at": start + number * step,
            "name": f"a visitor number {number % 977}",
            "amount": number / 7,
            "seen": number % 3 == 0,
        }
        if nested:
            row["items"] = [{"sku": f"sku-{number % 101}", "count": number % 5}]
        rows.append(row)
    return rows


def events(
    day: int, count: int, *, disposition: str = "append", nested: bool = False
) -> Callable[..., DltSource]:
    """A source function with one resource, ``events``, that pages through the rows of one day.

    Its cursor takes its bounds from whoever runs it.
    """
    rows = rows_of(day, count, nested)
    hints: dict[str, Any] = {"write_disposition": disposition}
    if disposition == "merge":
        hints["primary_key"] = "id"

    @dlt.source(name="bench_events")
    def source() -> Any:
        @dlt.resource(name="events", **hints)
        def resource(at: Any = dlt.sources.incremental("at", initial_value=EPOCH)) -> Iterator[Any]:
            for position in range(0, len(rows), PAGE):
                yield rows[position : position + PAGE]

        return resource

    return source

"""Small dlt sources whose rows a test can say by heart."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dlt
from dlt.extract.source import DltSource

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
FIRST = datetime(2024, 1, 1, tzinfo=UTC)


def day(number: int, hour: int = 12) -> datetime:
    """An hour of the given day of January 2024."""
    return FIRST + timedelta(days=number - 1, hours=hour)


def events(days: int = 6) -> list[dict[str, Any]]:
    """One row a day at noon, each with two nested ones, and a column that is named like a keyword."""
    return [
        {
            "id": number,
            "at": day(number),
            "order": number * 10,
            "items": [{"sku": f"{number}-{n}"} for n in (1, 2)],
        }
        for number in range(1, days + 1)
    ]


def source_of(
    rows: Callable[[], Iterable[Mapping[str, Any]]] | Iterable[Mapping[str, Any]],
    *,
    name: str = "web_events",
    **hints: Any,
) -> Callable[[], DltSource]:
    """A source function whose one resource, ``events``, yields the rows with ``at`` as its cursor.

    Args:
        rows: The rows, or a function that gives them each time the source is read.
        name: The source's name.
        hints: Arguments of ``@dlt.resource``, for example ``write_disposition``.
    """

    def make() -> DltSource:
        @dlt.source(name=name)
        def wrapped() -> Any:
            @dlt.resource(name="events", **hints)
            def resource(at: Any = dlt.sources.incremental("at", initial_value=EPOCH)) -> Any:
                yield from (dict(row) for row in (rows() if callable(rows) else rows))

            return resource

        return wrapped()

    return make


def new_columns() -> list[dict[str, Any]]:
    """Each day brings a column that no other has."""
    return [{**events()[0], "first": "a"}, {**events()[1], "second": "b"}]


def two_types() -> list[dict[str, Any]]:
    """One column that is a number on day 1 and a text on day 2."""
    return [{**events()[0], "size": 7}, {**events()[1], "size": "large"}]


def own_columns() -> list[dict[str, Any]]:
    """Eight days, each of which brings a column to the events and one to their items that no other has."""
    return [
        {
            **event,
            f"only_{event['id']}": "x",
            "items": [{**item, f"own_{event['id']}": "y"} for item in event["items"]],
        }
        for event in events(8)
    ]


def changes() -> list[dict[str, Any]]:
    """Day 1 brings events 1 to 80; each of the next four changes ten, deletes five and brings five."""
    return [
        *({"id": number, "at": day(1), "order": 0, "items": _items(number, 2)} for number in range(1, 81)),
        *(
            {
                "id": first + offset + (1_000 if offset > 14 else 0),
                "at": day(number),
                "order": number,
                "items": _items(number, offset % 4),
                "gone": 10 <= offset < 15,
            }
            for number, first in zip(range(2, 6), range(1, 81, 20), strict=True)
            for offset in range(20)
        ),
    ]


def _items(number: int, count: int) -> list[dict[str, Any]]:
    return [{"sku": f"{number}-{n}"} for n in range(count)]


own_columns_source = source_of(own_columns)


def changing(strategy: str) -> Callable[[], DltSource]:
    """The changes, merged by ``id``."""
    return source_of(
        changes,
        write_disposition={"disposition": "merge", "strategy": strategy},
        primary_key="id",
        columns={"gone": {"data_type": "bool", "hard_delete": True}},
    )


delete_insert_source = changing("delete-insert")
upsert_source = changing("upsert")
new_columns_source = source_of(new_columns)
two_types_source = source_of(two_types)


def meeting(folder: str, guests: int) -> DltSource:
    """Events of eight days; an extraction goes on once so many others have begun and are not over."""

    def rows() -> Iterable[Mapping[str, Any]]:
        yield from events(8)
        Path(folder, str(os.getpid())).touch()
        deadline = time.monotonic() + 60
        while len(os.listdir(folder)) < guests:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(os.listdir(folder))} of {guests} came")
            time.sleep(0.01)

    return source_of(rows)()


def shop(*names: str) -> Callable[[], DltSource]:
    """A source with a resource of each name."""

    @dlt.source(name="shop")
    def source() -> Any:
        for name in names:

            @dlt.resource(name=name)
            def rows(at: Any = dlt.sources.incremental("at", initial_value=EPOCH)) -> Any:
                yield from events(3)

            yield rows

    return source

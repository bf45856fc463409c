"""A row a day at noon, under the hand of a test: it can be held, be down, and says what it was asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dlt


@dlt.source(name="steered")
def events(folder: str) -> Any:
    """The folder may hold ``hold-<day>`` (stay until it is gone), ``down-<day>`` and ``down-once-<day>``."""

    @dlt.resource(name="events")
    def rows(
        at: dlt.sources.incremental[datetime] = dlt.sources.incremental(
            "at", initial_value=datetime(2020, 1, 1, tzinfo=UTC)
        ),
    ) -> Iterator[dict[str, Any]]:
        day, place = at.start_value.day, Path(folder)
        with (place / "reads").open("a") as reads:
            reads.write(f"{day}\n")
        version = len((place / "reads").read_text().splitlines())
        while (place / f"hold-{day}").exists():
            time.sleep(0.1)
        once = place / f"down-once-{day}"
        if (place / f"down-{day}").exists() or once.exists():
            once.unlink(missing_ok=True)
            raise ConnectionError(f"the source of day {day} is down")
        for number in range(1, 7):
            yield {"id": number, "at": datetime(2026, 1, number, 12, tzinfo=UTC), "version": version}

    return rows

"""Six page views at noon, one a day from 2026-01-01: small enough to check every row by eye."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import dlt

from sources import outage

VIEWS = [
    {"id": day, "page": f"/day/{day}", "at": datetime(2026, 1, day, 12, tzinfo=UTC)} for day in range(1, 7)
]


# [START source]
@dlt.resource(write_disposition="append")
def page_views(
    at: dlt.sources.incremental[datetime] = dlt.sources.incremental(
        "at", initial_value=datetime(2026, 1, 1, tzinfo=UTC)
    ),
) -> Iterator[list[dict[str, Any]]]:
    """Page views by the time they happened at; dlt drops the rows outside of the chunk."""
    outage.rehearse(at.start_value)
    yield [dict(view) for view in VIEWS]


# [END source]

"""Six page views and six searches at noon, one a day from 2026-01-01: small enough to check by eye."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import dlt

from sources import outage

VIEWS = [
    {"id": day, "page": f"/day/{day}", "at": datetime(2026, 1, day, 12, tzinfo=UTC)} for day in range(1, 7)
]
SEARCHES = [{"id": view["id"], "words": f"day {view['id']}", "at": view["at"]} for view in VIEWS]


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


@dlt.resource(write_disposition="append")
def searches(
    at: dlt.sources.incremental[datetime] = dlt.sources.incremental(
        "at", initial_value=datetime(2026, 1, 1, tzinfo=UTC)
    ),
) -> Iterator[list[dict[str, Any]]]:
    """Searches by the time they were made at."""
    yield [dict(search) for search in SEARCHES]


@dlt.source
def site() -> Any:
    """Everything that happens on the site, of which resources may be chosen."""
    return page_views, searches

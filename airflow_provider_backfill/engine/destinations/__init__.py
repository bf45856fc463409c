"""The databases a backfill can load to: one module a dialect, found by name through an entry-point group."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from urllib.parse import urlsplit

from airflow_provider_backfill.engine.destinations.base import LEDGER_TABLE, Dialect, Session, Target
from airflow_provider_backfill.engine.destinations.duckdb import Duckdb
from airflow_provider_backfill.engine.destinations.postgres import Postgres
from airflow_provider_backfill.exceptions import DestinationUnsupportedError

__all__ = ["LEDGER_TABLE", "Dialect", "Session", "Target", "dialect_for", "dialect_for_url", "dialects"]

#: Other packages offer a :class:`Dialect` subclass under this group.
ENTRY_POINT_GROUP = "airflow_provider_backfill.dialects"


@cache
def dialects() -> dict[str, Dialect]:
    """Every dialect by the name dlt gives the destination."""
    found: dict[str, Dialect] = {"duckdb": Duckdb(), "postgres": Postgres()}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        found.setdefault(point.name, point.load()())
    return found


def dialect_for(name: str) -> Dialect:
    """The dialect of a dlt destination.

    Raises:
        DestinationUnsupportedError: No dialect can carry the ledger there.
    """
    try:
        return dialects()[name]
    except KeyError:
        raise DestinationUnsupportedError(name, tuple(dialects())) from None


def dialect_for_url(url: str) -> Dialect:
    """The dialect of a URL such as ``postgresql://host/db`` or ``duckdb:///file.duckdb``."""
    scheme = urlsplit(url).scheme.split("+")[0]
    for dialect in dialects().values():
        if scheme in dialect.schemes:
            return dialect
    raise DestinationUnsupportedError(scheme or url, tuple(dialects()))

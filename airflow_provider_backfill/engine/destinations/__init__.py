"""The databases a backfill can load to: one module a dialect, found by name through an entry-point group."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from urllib.parse import urlsplit

from airflow_provider_backfill.engine.destinations.base import LEDGER_TABLE, Dialect, Session, Target
from airflow_provider_backfill.engine.destinations.duckdb import Duckdb
from airflow_provider_backfill.engine.destinations.features import ENTRY_POINT_GROUP, unsupported
from airflow_provider_backfill.engine.destinations.postgres import Postgres
from airflow_provider_backfill.exceptions import DialectError

__all__ = [
    "ENTRY_POINT_GROUP",
    "LEDGER_TABLE",
    "Dialect",
    "Session",
    "Target",
    "dialect_for",
    "dialect_for_url",
    "dialects",
]

log = logging.getLogger(__name__)


@cache
def _own() -> Mapping[str, Dialect]:
    return {"duckdb": Duckdb(), "postgres": Postgres()}


@cache
def dialects() -> Mapping[str, Dialect]:
    """Every dialect by the name dlt gives the destination; one that cannot be used is warned of."""
    found = dict(_own())
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            found.setdefault(point.name, _load(point))
        except DialectError as error:
            log.warning("%s", error)
    return found


def dialect_for(name: str) -> Dialect:
    """The dialect of a dlt destination.

    Raises:
        DestinationUnsupportedError: No dialect can carry the ledger there.
        DialectError: One says that it can, and cannot be used.
    """
    if name in _own():
        # Nobody waits for what other packages import, who does not use it.
        return _own()[name]
    if name in dialects():
        return dialects()[name]
    for point in entry_points(group=ENTRY_POINT_GROUP, name=name):
        return _load(point)
    raise unsupported(name)


def dialect_for_url(url: str) -> Dialect:
    """The dialect of a URL such as ``postgresql://host/db`` or ``duckdb:///file.duckdb``.

    Raises as `dialect_for`.
    """
    scheme = urlsplit(url).scheme.split("+")[0]
    for known in (_own, dialects):
        for dialect in known().values():
            if scheme in dialect.schemes:
                return dialect
    return dialect_for(scheme or url)


def _load(point: EntryPoint) -> Dialect:
    """The dialect that another package offers.

    Raises:
        DialectError: It cannot be imported or made, or is none of that name.
    """
    package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
    try:
        made = point.load()
        reason = _wrong(made, point.name)
        if not reason:
            dialect: Dialect = made()
            return dialect
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a foreign package raises
        reason = f"{type(error).__name__}: {error}"
    raise DialectError(point.name, package, reason)


def _wrong(made: object, name: str) -> str:
    if not (isinstance(made, type) and issubclass(made, Dialect)):
        return f"it is no subclass of {Dialect.__module__}.Dialect"
    lacking = sorted(getattr(made, "__abstractmethods__", ()))
    lacking += [each for each in inspect.get_annotations(Dialect) if not hasattr(made, each)]
    if lacking:
        return f"it lacks {', '.join(lacking)}"
    return "" if made.name == name else f"it calls itself {made.name!r}"

"""Products that are broken on purpose: the harness must find each of them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ENVIRONMENT = "CHAOS_SABOTAGE"


def _untransactional() -> None:
    """Publishing commits each statement by itself."""
    from airflow_provider_backfill.engine.destinations.duckdb import DuckdbSession
    from airflow_provider_backfill.engine.destinations.postgres import PostgresSession

    @contextmanager
    def transaction(session: Any) -> Iterator[None]:
        yield

    for kind in (DuckdbSession, PostgresSession):
        setattr(kind, "transaction", transaction)  # noqa: B010


def _unguarded() -> None:
    """A claim that is lost completes the chunk all the same.

    Nor does a rival sweep the sleeper's stage away, which alone would stop it from publishing.
    """
    from airflow_provider_backfill.engine import lease
    from airflow_provider_backfill.engine.ledger import Ledger
    from airflow_provider_backfill.exceptions import ClaimLostError

    guarded = Ledger._guarded

    def unguarded(ledger: Any, name: str, claim: Any, **parameters: Any) -> None:
        try:
            guarded(ledger, name, claim, **parameters)
        except ClaimLostError:
            if name != "complete":
                raise

    setattr(Ledger, "_guarded", unguarded)  # noqa: B010
    setattr(lease.Heartbeat, "check", lambda heartbeat: None)  # noqa: B010
    _untidy()


def _untidy() -> None:
    """What dead attempts leave behind is nobody's business."""
    from airflow_provider_backfill.engine import attempt, stage

    for module in (attempt, stage):
        setattr(module, "drop_leftovers", lambda *arguments: [])  # noqa: B010


def _deaf() -> None:
    """SIGTERM ends the process as it does any other."""
    from airflow_provider_backfill.engine import signals

    setattr(signals, "_STOPPING", ())  # noqa: B010


SABOTAGES: dict[str, Callable[[], None]] = {
    "untransactional": _untransactional,
    "unguarded": _unguarded,
    "untidy": _untidy,
    "deaf": _deaf,
}


def install(name: str) -> None:
    """Break the product in this process."""
    SABOTAGES[name]()

"""What one request may see: the ledgers that a DAG names, and the backfills in them that concern the DAG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from airflow.api_fastapi.app import get_auth_manager
from fastapi import HTTPException, Request

from airflow_provider_backfill.engine.bounds import Bound, parse_bound
from airflow_provider_backfill.engine.destinations.base import Session
from airflow_provider_backfill.engine.intervals import stored_bound
from airflow_provider_backfill.engine.overview import BackfillSummary, Overview
from airflow_provider_backfill.engine.peek import PeekState
from airflow_provider_backfill.plugins.ledgers import NamedLedger, ledgers_of, ledgers_of_dags
from airflow_provider_backfill.plugins.looks import Ask, Look, Looks
from airflow_provider_backfill.plugins.rights import may_read, may_read_logs, user_of
from airflow_provider_backfill.plugins.telling import Addresses

Seen = TypeVar("Seen")

#: How long a client is asked to wait before it comes again to a busy ledger, seconds.
_RETRY_SECONDS = "2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """The backfills of a dataset, and the DAGs that have to do with each."""

    backfills: Sequence[BackfillSummary]
    owners: dict[str, frozenset[str]]

    @classmethod
    def read(cls, session: Session, overview: Overview) -> Shelf:
        return cls(backfills=overview.backfills(), owners=overview.dags())

    def of(self, dag_id: str) -> list[BackfillSummary]:
        """Those that concern a DAG: its own, and those that no DAG has planned or claimed anything of."""
        return [
            each
            for each in self.backfills
            if concerns(dag_id, self.owners.get(each.backfill_id, frozenset()))
        ]


def concerns(dag_id: str, owners: frozenset[str]) -> bool:
    """Whether a backfill is seen on the page of a DAG.

    One that other DAGs run is not: whoever may look at this one may not look at them for that.
    """
    return not owners or dag_id in owners


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One backfill.

    Args:
        dag_id: The DAG that it is seen through.
        ledger: The ledger that it stands in.
        summary: What it is.
        look: The look that found it.
    """

    dag_id: str
    ledger: NamedLedger
    summary: BackfillSummary
    look: Look[Any]


class Desk:
    """One request's way to ledgers.

    Args:
        request: One that was let in.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self._readable: dict[str, bool] = {}

    @property
    def user(self) -> Any:
        return user_of(self.request)

    @property
    def looks(self) -> Looks:
        looks: Looks = self.request.app.state.looks
        return looks

    @property
    def addresses(self) -> Addresses:
        return Addresses(str(self.request.scope.get("root_path", "")).removesuffix("/backfills"))

    def may_read(self, dag_id: str) -> bool:
        """Whether the user may look at a DAG."""
        if dag_id not in self._readable:
            self._readable[dag_id] = may_read(self.request, dag_id)
        return self._readable[dag_id]

    def tells_errors(self, dag_id: str) -> bool:
        """Whether the user may read why chunks of a DAG failed."""
        return may_read_logs(self.request, dag_id)

    def dags(self) -> dict[str, tuple[NamedLedger, ...]]:
        """The DAGs that backfill, of those that the user may look at, in order."""
        return ledgers_of_dags(get_auth_manager().get_authorized_dag_ids(user=self.user, method="GET"))

    def ledgers(self, dag_id: str) -> tuple[NamedLedger, ...]:
        """The ledgers that a DAG names.

        Raises:
            HTTPException: 404: it names none, or there is no such DAG.
        """
        found = ledgers_of(dag_id)
        if not found:
            raise HTTPException(404, "there is no such DAG, or it has no task that backfills")
        return found

    def ledger(self, dag_id: str, key: str) -> NamedLedger:
        """One of them that can be looked into.

        Raises:
            HTTPException: 404: there is none, or it cannot be looked into.
        """
        for ledger in self.ledgers(dag_id):
            if ledger.key == key:
                if ledger.unreadable:
                    raise HTTPException(404, f"the ledger cannot be looked into: {ledger.unreadable}")
                return ledger
        raise HTTPException(404, "the DAG names no such ledger")

    def shelves(self, ledgers: Sequence[NamedLedger]) -> list[Look[Shelf] | None]:
        """What stands in each ledger; None for one that cannot be looked into."""
        readable = [ledger for ledger in ledgers if not ledger.unreadable]
        looks = iter(self.looks.look_into_all(readable, "shelf", Shelf.read))
        return [None if ledger.unreadable else next(looks) for ledger in ledgers]

    def in_run(self, ledger: NamedLedger, dag_id: str, run_id: str) -> frozenset[str]:
        """The backfills of a DAG run."""
        name = ("run", dag_id, run_id)
        return (
            self.looks.look(ledger, name, lambda _, overview: overview.run(dag_id, run_id)).seen
            or frozenset()
        )

    def find(self, dag_id: str, key: str, backfill_id: str) -> Found:
        """One backfill.

        Raises:
            HTTPException: 404: there is none, or it is none of the DAG's. 503: its ledger cannot be read.
        """
        ledger = self.ledger(dag_id, key)
        look = self.looks.look(ledger, "shelf", Shelf.read)
        if look.seen is None:
            unread(look)
        for summary in look.seen.of(dag_id):
            if summary.backfill_id == backfill_id:
                return Found(dag_id=dag_id, ledger=ledger, summary=summary, look=look)
        raise HTTPException(404, "the ledger has no such backfill, or it is another DAG's")

    def read(self, found: Found, name: tuple[Any, ...], ask: Ask[Seen]) -> Look[Seen]:
        """More of a backfill that was found; it was seen, now or before.

        Args:
            found: The backfill.
            name: What is asked, beside the backfill.
            ask: How to read it.

        Raises:
            HTTPException: 503: its ledger cannot be read, and never was.
        """
        look = self.looks.look(found.ledger, (found.summary.backfill_id, *name), ask)
        if look.seen is None:
            unread(look)
        return look


def unread(look: Look[Any]) -> NoReturn:
    """Say why nothing was seen.

    Raises:
        HTTPException: 404: there is no ledger. 503: it is busy or unreachable.
    """
    if look.state is PeekState.ABSENT:
        raise HTTPException(404, f"there is no ledger: {look.reason}")
    raise HTTPException(
        503, f"the ledger is {look.state}: {look.reason}", headers={"Retry-After": _RETRY_SECONDS}
    )


def bound_of(value: str | int | None, name: str, summary: BackfillSummary) -> Bound | None:
    """A bound that a request has, of the kind of the backfill's window.

    Raises:
        HTTPException: 400: it is none.
        BoundFormatError: Likewise.
    """
    if value is None or value == "":
        return None
    bound = parse_bound(value, name, summary.timezone)
    if isinstance(bound, int) != summary.window.whole:
        kind = "a whole number" if summary.window.whole else "a time"
        raise HTTPException(400, f"{name} does not fit the window; pass {kind}")
    # One that no ledger can keep is refused before a ledger is asked.
    stored_bound(bound, name)
    return bound

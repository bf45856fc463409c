"""The runs ledger ``_dlt_ops_runs``, which dlt-ops knows too: one row an attempt. It only records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.observers import Observer, recorded
from airflow_provider_backfill.engine.records import Claim
from airflow_provider_backfill.engine.statements import RUNS_TABLE


class Runs(Observer):
    """The table ``_dlt_ops_runs`` beside the ledger."""

    file_name = "runs.sql"
    table = RUNS_TABLE

    def begin(self, first: bool, **values: Any) -> datetime:
        """Note that an attempt begins, and if it is not the ``first``, that one before it was interrupted."""
        with self._brief():
            self._prepare()
            if not first:
                self._run("interrupted", values)
            [(started_at,)] = self._run("begin", values)
            return started_at  # type: ignore[no-any-return]

    def end(self, **values: Any) -> None:
        """Note how an attempt ended."""
        with self._brief():
            self._run("end", values)


class RunRecord:
    """The row of one attempt. What cannot be written is one line in the log, and the attempt goes on.

    Args:
        target: Where the table stands.
        claim: The claim that the attempt holds.
        source_name: The source that the chunk was planned for.
        resources: Its resources that were asked for, names with commas; empty for all.
    """

    def __init__(self, *, target: Target, claim: Claim, source_name: str, resources: str) -> None:
        self._target = target
        self._number = claim.number
        self._first = claim.attempt == 1
        self._keys = {
            "source_section": source_name,
            "backfill_id": claim.backfill_id,
            "run_id": claim.run_id,
        }
        self._place = {
            "resource_name": resources or None,
            "destination": target.dialect.name,
            "dataset": target.dataset_name,
        }
        self._started_at: datetime | None = None
        self._lost = False

    def begin(self, session: Session) -> None:
        """Write the row as ``running``, unless it is there. Never inside another transaction."""
        if self._started_at is None:
            self._try(lambda: self._begin(session))

    def end(
        self,
        session: Session,
        status: str,
        *,
        load_id: str | None = None,
        extracted: int | None = None,
        loaded: int | None = None,
        error: str | None = None,
    ) -> None:
        """Complete the row; one that failed before it began is written whole.

        Args:
            session: An open connection, outside of any transaction.
            status: ``completed`` or ``failed``.
            load_id: dlt's id of the load, if it was published.
            extracted: Rows that the source gave, nested ones not counted; None if that is not known.
            loaded: Rows that were published, nested ones counted; None if none were.
            error: The reason of a failure, one line.
        """
        self.begin(session)
        outcome = {
            "status": status,
            "dlt_run_id": load_id,
            "records_extracted": extracted,
            "records_loaded": loaded,
            "error_summary": error,
        }
        self._try(
            lambda: Runs(session, self._target).end(**self._keys, **outcome, started_at=self._started_at)
        )

    def _begin(self, session: Session) -> None:
        self._started_at = Runs(session, self._target).begin(self._first, **self._keys, **self._place)

    def _try(self, step: Callable[[], None]) -> None:
        if not self._lost:
            what = f"chunk {self._number}: the run is not recorded in {RUNS_TABLE}"
            self._lost = not recorded(step, self._target, what)

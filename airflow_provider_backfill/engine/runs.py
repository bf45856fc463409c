"""The runs ledger ``_dlt_ops_runs``, which dlt-ops knows too: one row an attempt. It only records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.observers import Observer, recorded
from airflow_provider_backfill.engine.records import ChunkRow, Claim
from airflow_provider_backfill.engine.statements import RUNS_TABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One row of ``_dlt_ops_runs`` that is an attempt at a chunk, times in UTC.

    Args:
        backfill_id: The backfill.
        run_id: The chunk's run id, the same for all its attempts.
        status: ``running``, ``completed``, ``failed``, or a word of another tool's.
        started_at: When it began.
        completed_at: When it ended; None while it has not, or was killed.
        extracted: Rows that the source gave; None if that is not known.
        loaded: Rows that were published; None if none were.
        error: Why it failed; None if it did not.
        load_id: dlt's id of the load, if it was published.
    """

    backfill_id: str
    run_id: str
    status: str
    started_at: datetime
    completed_at: datetime | None
    extracted: int | None
    loaded: int | None
    error: str | None
    load_id: str | None

    @property
    def seconds(self) -> float | None:
        """How long it took; None while it has not ended."""
        return (self.completed_at - self.started_at).total_seconds() if self.completed_at else None

    def as_json(self) -> dict[str, Any]:
        """It for machines: times as ISO-8601."""
        times = {"started_at", "completed_at"}
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: v.isoformat() if name in times and v else v for name, v in values.items()}


class Runs(Observer):
    """The table ``_dlt_ops_runs`` beside the ledger."""

    file_name = "runs.sql"
    table = RUNS_TABLE

    def read(self) -> list[Run]:
        """Every attempt at a chunk, the oldest first; none where the table does not exist."""
        if not self._has(RUNS_TABLE):
            return []
        names = [field.name for field in fields(Run)]
        return [Run(**dict(zip(names, map(_utc, row), strict=True))) for row in self._run("read")]

    def begin(self, first: bool, **values: Any) -> datetime:
        """Note that an attempt begins, and if it is not the ``first``, that one before it was interrupted."""
        with self._brief():
            self._prepare()
            if not first:
                reason = "it was interrupted, and another attempt took over"
                self._run("interrupted", {**values, "reason": reason})
            [(started_at,)] = self._run("begin", values)
            return started_at  # type: ignore[no-any-return]

    def interrupt(self, row: ChunkRow, reason: str) -> None:
        """Note that whoever ran a chunk was stopped, for a ``reason`` of one line."""
        with self._brief():
            if self._has(RUNS_TABLE):
                keys = {name: getattr(row, name) for name in ("run_id", "source_section", "backfill_id")}
                self._run("interrupted", {**keys, "reason": reason})

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


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value

"""From what the engine read to what the API answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any
from urllib.parse import quote

from airflow_provider_backfill.engine.controls import Control
from airflow_provider_backfill.engine.grid import Grid
from airflow_provider_backfill.engine.intervals import Interval, plain_bound
from airflow_provider_backfill.engine.overview import (
    BackfillSummary,
    ChunkAttempt,
    Condition,
    Failure,
    SourceCoverage,
)
from airflow_provider_backfill.engine.pace import Pace
from airflow_provider_backfill.engine.plan import interval_label
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from airflow_provider_backfill.plugins.documents import (
    AttemptDocument,
    BackfillDocument,
    CellDocument,
    ChunkDocument,
    ControlDocument,
    CoverageDocument,
    FailureDocument,
    GridDocument,
    HolderDocument,
    LedgerDocument,
    PaceDocument,
    RangeDocument,
    RowDocument,
    TaskDocument,
)
from airflow_provider_backfill.plugins.ledgers import NamedLedger
from airflow_provider_backfill.plugins.looks import Look


class Addresses:
    """Where things stand, below the path that Airflow is served under.

    Args:
        root: That path; empty for most.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    def asset(self, name: str) -> str:
        return f"{self._root}/backfills/static/{name}"

    def everything(self) -> str:
        return f"{self._root}/backfills/"

    def dag(self, dag_id: str) -> str:
        return f"{self._root}/backfills/dags/{_part(dag_id)}"

    def backfill(self, dag_id: str, ledger: str, backfill_id: str) -> str:
        return f"{self.dag(dag_id)}/ledgers/{ledger}/backfills/{_part(backfill_id)}"

    def api(self, dag_id: str, ledger: str, backfill_id: str) -> str:
        place = self.backfill(dag_id, ledger, backfill_id)
        return place.replace("/backfills/dags/", "/backfills/api/v1/dags/", 1)

    def airflow_dag(self, dag_id: str) -> str:
        return f"{self._root}/dags/{_part(dag_id)}"

    def airflow_run(self, dag_id: str, run_id: str) -> str:
        return f"{self.airflow_dag(dag_id)}/runs/{_part(run_id)}"

    def airflow_task(self, dag_id: str, run_id: str, task_id: str, map_index: int | None) -> str:
        mapped = "" if map_index is None or map_index < 0 else f"/mapped/{map_index}"
        return f"{self.airflow_run(dag_id, run_id)}/tasks/{_part(task_id)}{mapped}"


def _part(text: str) -> str:
    return quote(text, safe="")


def ledger_document(ledger: NamedLedger, look: Look[Any] | None) -> LedgerDocument:
    """A ledger; without a look one that cannot be looked into."""
    return LedgerDocument(
        ledger=ledger.key,
        connection=ledger.conn_id,
        dataset=ledger.dataset_name,
        into=ledger.into,
        tasks=list(ledger.tasks),
        state=look.state if look else "unreadable",
        reason=look.reason if look else ledger.unreadable,
        as_of=look.as_of if look else None,
    )


def backfill_document(
    summary: BackfillSummary, ledger: NamedLedger, dag_id: str, addresses: Addresses, *, errors: bool
) -> BackfillDocument:
    """A backfill at a glance; ``errors`` as of `chunk_document`."""
    return BackfillDocument(
        ledger=ledger.key,
        backfill_id=summary.backfill_id,
        source=summary.source,
        resources=list(summary.resources),
        start=plain_bound(summary.window.start),
        end=plain_bound(summary.window.end),
        label=interval_label(summary.window, summary.timezone),
        chunk_size=summary.chunk_size.partition("@")[0],
        timezone=summary.timezone,
        state=summary.state,
        chunks=summary.chunks,
        done=summary.done,
        counts=dict(summary.counts),
        rows=summary.rows,
        pace=_pace(summary.pace),
        last_error=_failure(summary.last_error, errors),
        control=_control(summary.control),
        changed_at=summary.changed_at,
        page=addresses.backfill(dag_id, ledger.key, summary.backfill_id),
    )


_UNTOLD = "you may not read the task's log, which has the reason"


def _pace(pace: Pace | None) -> PaceDocument | None:
    if pace is None:
        return None
    return PaceDocument(
        chunks_per_minute=pace.chunks_per_minute,
        rows_per_second=pace.rows_per_second,
        seconds_left=pace.seconds_left,
    )


def _failure(failure: Failure | None, errors: bool) -> FailureDocument | None:
    if failure is None:
        return None
    return FailureDocument(chunk=failure.number, error=failure.error if errors else _UNTOLD, at=failure.at)


def _told(error: str | None, errors: bool) -> str | None:
    return error if error is None or errors else _UNTOLD


def _control(control: Control | None) -> ControlDocument | None:
    if control is None:
        return None
    return ControlDocument(state=control.state, who=control.who, why=control.why, at=control.at)


def condition_of(row: ChunkRow) -> Condition:
    """How a chunk stands."""
    if row.status is ChunkStatus.COMPLETED:
        return Condition.COVERED if row.covered_by else Condition.COMPLETED
    if row.lapsed:
        return Condition.LAPSED
    return Condition.HELD if row.held else Condition(row.status)


def chunk_document(
    row: ChunkRow, now: datetime, addresses: Addresses, may_read: Callable[[str], bool], *, errors: bool
) -> ChunkDocument:
    """A chunk.

    Args:
        row: Its row.
        now: When it was read, for how long the attempt in flight has taken.
        addresses: Where its task stands.
        may_read: Whether a DAG may be looked at; of others nothing is told.
        errors: Whether to tell why it failed, which may quote rows, as a task's log does.
    """
    condition = condition_of(row)
    taken = condition in (Condition.HELD, Condition.LAPSED)
    return ChunkDocument(
        chunk_id=row.chunk_id,
        number=row.number,
        start=plain_bound(row.interval.start),
        end=plain_bound(row.interval.end),
        label=interval_label(row.interval, row.timezone),
        status=str(row.status),
        condition=condition,
        attempt=row.attempt or 0,
        holder=HolderDocument(
            name=row.claimed_by,
            claimed_at=row.claimed_at,
            lease_expires_at=row.lease_expires_at,
            seconds_left=row.lease_left,
        )
        if taken
        else None,
        rows=row.records_loaded,
        started_at=row.started_at,
        completed_at=row.completed_at,
        seconds=_seconds(row, now if condition is Condition.HELD else None),
        error=_told(row.error, errors),
        will_retry=row.will_retry,
        covered_by=row.covered_by.split(",") if row.covered_by else [],
        run_id=row.run_id,
        task=_task(row, addresses) if row.dag_id and may_read(row.dag_id) else None,
    )


def _seconds(row: ChunkRow, now: datetime | None) -> float | None:
    end = row.completed_at or now
    if row.started_at is None or end is None:
        return None
    return max(0.0, (end - row.started_at).total_seconds())


def _task(row: ChunkRow, addresses: Addresses) -> TaskDocument | None:
    if not (row.dag_id and row.dag_run_id and row.task_id):
        return None
    return TaskDocument(
        dag_id=row.dag_id,
        dag_run_id=row.dag_run_id,
        task_id=row.task_id,
        map_index=row.map_index,
        log=addresses.airflow_task(row.dag_id, row.dag_run_id, row.task_id, row.map_index),
        run=addresses.airflow_run(row.dag_id, row.dag_run_id),
    )


def attempt_document(attempt: ChunkAttempt, *, errors: bool) -> AttemptDocument:
    """One attempt at a chunk; ``errors`` as of `chunk_document`."""
    return AttemptDocument(
        started_at=attempt.started_at,
        completed_at=attempt.completed_at,
        status=attempt.status,
        rows=attempt.rows,
        error=_told(attempt.error, errors),
    )


def grid_document(grid: Grid, ledger: LedgerDocument) -> GridDocument:
    """All chunks of a backfill as a calendar."""
    return GridDocument(
        ledger=ledger,
        group=grid.group,
        choices=list(grid.choices),
        rows=[
            RowDocument(
                label=row.label,
                indent=row.indent,
                cells=[
                    CellDocument(
                        first=cell.first,
                        last=cell.last,
                        start=plain_bound(cell.interval.start),
                        end=plain_bound(cell.interval.end),
                        condition=cell.condition,
                        done=cell.done,
                        counts=dict(cell.counts),
                        rows=cell.rows,
                        seconds=cell.seconds,
                    )
                    for cell in row.cells
                ],
            )
            for row in grid.rows
        ],
    )


def coverage_document(
    coverage: SourceCoverage,
    summary: BackfillSummary,
    ledger: LedgerDocument,
    *,
    limit: int,
    offset: int,
) -> CoverageDocument:
    """What of a source is loaded; at most ``limit`` ranges of either kind, from ``offset`` on."""
    some = slice(offset, offset + limit)
    return CoverageDocument(
        ledger=ledger,
        source=summary.source,
        resources=list(summary.resources),
        extent=_range(coverage.extent),
        covered=_ranges(coverage.covered[some]),
        covered_total=len(coverage.covered),
        gaps=_ranges(coverage.gaps[some]),
        gaps_total=len(coverage.gaps),
    )


def _ranges(intervals: Iterable[Interval]) -> list[RangeDocument]:
    return [_range(interval) for interval in intervals]


def _range(interval: Interval) -> RangeDocument:
    return RangeDocument(start=plain_bound(interval.start), end=plain_bound(interval.end))

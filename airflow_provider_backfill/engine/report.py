"""What people are told about a backfill: the lines of a run, the tally at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_backfill.engine.intervals import Interval, bound_text
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus


def chunk_line(number: int, total: int, interval: Interval, text: str) -> str:
    """``chunk 1/5 [<from> → <to>): <text>``"""
    return f"chunk {number}/{total} [{bound_text(interval.start)} → {bound_text(interval.end)}): {text}"


def running(run_id: str) -> str:
    return f"running (run_id={run_id})"


def completed(records: int) -> str:
    return f"completed ({records} records)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How a backfill stands after a run.

    Args:
        backfill_id: The backfill.
        completed: Chunks that this run loaded.
        skipped: Chunks that were completed before, or that somebody else completed meanwhile.
        claimed_elsewhere: Chunks that somebody else holds.
        failed: Rows of the chunks whose last attempt failed.
        pending: How many chunks nobody has tried yet.
        total: How many chunks the plan has.
        records: Rows in all completed chunks.
    """

    backfill_id: str
    completed: int
    skipped: int
    claimed_elsewhere: int
    failed: tuple[ChunkRow, ...]
    pending: int
    total: int
    records: int

    @classmethod
    def of(cls, rows: Sequence[ChunkRow], loaded: Iterable[str]) -> Tally:
        """Count the rows of one backfill; ``loaded`` are the ids of the chunks that this run loaded."""
        done = [row for row in rows if row.status is ChunkStatus.COMPLETED]
        here = {row.chunk_id for row in done} & set(loaded)
        return cls(
            backfill_id=rows[0].backfill_id,
            completed=len(here),
            skipped=len(done) - len(here),
            claimed_elsewhere=sum(row.held for row in rows),
            failed=tuple(row for row in rows if row.status is ChunkStatus.FAILED or row.lapsed),
            pending=sum(row.status is ChunkStatus.PENDING for row in rows),
            total=len(rows),
            records=sum(row.records_loaded or 0 for row in done),
        )

    @property
    def covered(self) -> bool:
        """Every chunk of the window is completed."""
        return self.completed + self.skipped == self.total

    def __str__(self) -> str:
        return (
            f"Backfill {self.backfill_id}: {self.completed} completed, {self.skipped} skipped, "
            f"{self.claimed_elsewhere} claimed elsewhere ({self.total} chunks)"
        )

    def shortfall(self) -> list[str]:
        """One line a failed chunk with its reason, and one for those that were not tried."""
        lines = [
            chunk_line(row.number, self.total, row.interval, f"failed ({row.error or 'its lease ran out'})")
            for row in self.failed
        ]
        if self.pending:
            lines.append(f"{self.pending} pending")
        return lines

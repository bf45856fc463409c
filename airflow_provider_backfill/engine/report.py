"""What people are told about a backfill: the lines of a run, the tally at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_backfill.engine.intervals import Interval, bound_text
from airflow_provider_backfill.engine.plan import BackfillPlan, interval_label
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


def standing(plan: BackfillPlan, rows: Sequence[ChunkRow]) -> dict[str, int]:
    """How the plan stands; ``due`` is what a run would load, failed chunks among it."""
    completed = sum(row.status is ChunkStatus.COMPLETED for row in rows)
    held = sum(row.held for row in rows)
    return {
        "completed": completed,
        "due": len(plan.chunks) - completed - held,
        "failed": sum(row.status is ChunkStatus.FAILED or row.lapsed for row in rows),
        "held": held,
    }


def plan_pairs(plan: BackfillPlan, rows: Sequence[ChunkRow] | None) -> list[tuple[str, str]]:
    """A plan and how it stands, for people; ``rows`` is None when the dataset has no ledger."""
    window = plan.window
    now = standing(plan, rows or ())
    pairs = [
        ("backfill", plan.backfill_id),
        ("source", plan.source),
        ("window", _half_open(window.interval)),
    ]
    if window.timezone != "UTC":
        pairs.append((f"in {window.timezone}", interval_label(window.interval, window.timezone)))
    pairs += [
        ("chunks", f"{len(plan.chunks)} of {plan.size}"),
        ("first", _half_open(plan.chunks[0].interval)),
        ("last", _half_open(plan.chunks[-1].interval)),
    ]
    if rows is None:
        pairs.append(("ledger", "none yet"))
    pairs += [
        ("completed", str(now["completed"])),
        (
            "due",
            f"{now['due']} ({now['failed']} failed)" if now["failed"] else str(now["due"]),
        ),
        ("held", str(now["held"])),
    ]
    return pairs


def _half_open(interval: Interval) -> str:
    return f"[{bound_text(interval.start)} → {bound_text(interval.end)})"


def plan_table(plan: BackfillPlan, rows: Sequence[ChunkRow], *, mapped: int, tasks: int) -> str:
    """The plan as lines of a task's log.

    Args:
        plan: The plan.
        rows: How it stands.
        mapped: How many chunks this DAG run runs, completed ones that it mapped before among them.
        tasks: How many mapped tasks run them.
    """
    pairs = [
        *plan_pairs(plan, rows),
        ("mapped", f"{mapped} in {tasks} tasks" if tasks != mapped else str(mapped)),
    ]
    width = max(len(name) for name, _ in pairs)
    return "\n".join(
        [f"Backfill {plan.backfill_id}", *(f"  {name:<{width}}  {value}" for name, value in pairs[1:])]
    )

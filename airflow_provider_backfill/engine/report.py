"""What people are told about a backfill: the lines of a run, the tally at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from airflow_provider_backfill.engine.coverage import ranges
from airflow_provider_backfill.engine.estimates import Estimate
from airflow_provider_backfill.engine.intervals import Interval, bound_text
from airflow_provider_backfill.engine.plan import Chunk, interval_label
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.survey import Survey
from airflow_provider_backfill.engine.thresholds import too_long


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


def standing(found: Survey) -> dict[str, int]:
    """How a plan stands, in numbers of chunks; see `Survey`."""
    return {
        "completed": found.completed,
        "covered": found.covered,
        "due": found.due,
        "failed": found.failed,
        "held": found.held,
    }


def estimate_line(estimate: Estimate, settings: Settings) -> str:
    """An estimate for people, with what it is above."""
    long = too_long(estimate, settings)
    return f"{estimate}; above max_estimated_hours = {long.max_estimated_hours:g}" if long else str(estimate)


def plan_pairs(found: Survey, settings: Settings) -> list[tuple[str, str]]:
    """A plan and how it stands, for people.

    Args:
        found: The plan.
        settings: What it may be above.
    """
    plan, resolved = found.plan, found.resolved
    window = plan.window
    above = f"; above max_chunks = {settings.max_chunks}" if len(plan.chunks) > settings.max_chunks else ""
    pairs = [
        ("backfill", plan.backfill_id),
        ("source", plan.source),
        ("window", half_open(window.interval)),
    ]
    if window.timezone != "UTC":
        pairs.append((f"in {window.timezone}", interval_label(window.interval, window.timezone)))
    pairs += [
        ("chunks", f"{len(plan.chunks)} of {plan.size}{above}"),
        ("first", _in_both(plan.chunks[0].interval, window.timezone)),
        ("last", _in_both(plan.chunks[-1].interval, window.timezone)),
    ]
    if found.rows is None:
        pairs.append(("ledger", "none yet"))
    pairs.append(("completed", str(found.completed)))
    if found.covered:
        others = sorted({each for chunk in resolved.covered for each in chunk.backfills})
        pairs.append(("covered", f"{found.covered} by {', '.join(others[:3])}"))
    pairs.append(("due", f"{found.due} ({found.failed} failed)" if found.failed else str(found.due)))
    if resolved.trimmed:
        gaps = sum(len(each.gaps) for each in resolved.trimmed)
        pairs.append(("trimmed", f"{len(resolved.trimmed)} of these to {gaps} gaps"))
    if resolved.reloaded:
        replaced = sum(len(each.replaced) for each in resolved.reloaded)
        pairs.append(("reloaded", f"{len(resolved.reloaded)} of these in place of {replaced} chunks"))
    pairs.append(("held", str(found.held)))
    if found.before:
        pairs.append(("missing before", ranges(found.before, window.timezone)))
    if found.gaps and found.gaps != (window.interval,):
        pairs.append(("missing", ranges(found.gaps, window.timezone)))
    return [*pairs, ("estimate", estimate_line(found.estimate, settings))]


def explain(found: Survey) -> list[tuple[str, str, str]]:
    """Number, interval and why it is to run or not, of each chunk of a plan."""
    rows = {row.chunk_id: row for row in found.rows or ()}
    return [
        (str(chunk.number), found.plan.label(chunk.interval), _reason(found, chunk, rows.get(chunk.chunk_id)))
        for chunk in found.plan.chunks
    ]


def _reason(found: Survey, chunk: Chunk, row: ChunkRow | None) -> str:
    if row is not None and row.status is ChunkStatus.COMPLETED:
        return f"covered by {row.covered_by}" if row.covered_by else completed(row.records_loaded or 0)
    if row is not None and row.held:
        return f"held by {row.claimed_by or 'an unknown worker'}"
    coverage = found.coverage[chunk.chunk_id]
    if not coverage.others and row is not None:
        if row.lapsed:
            return f"due: the lease of {row.claimed_by} ran out"
        if row.load_ids:
            return "due: it is to be loaded again"
        if row.status is ChunkStatus.FAILED:
            return f"due: it failed ({row.error})"
    return coverage.reason(found.plan.window.timezone)


def _in_both(interval: Interval, timezone: str) -> str:
    """In UTC, and in the zone if that is another."""
    text = half_open(interval)
    return text if timezone == "UTC" else f"{text}, {interval_label(interval, timezone)}"


def half_open(interval: Interval) -> str:
    """``[<from> → <to>)``"""
    return f"[{bound_text(interval.start)} → {bound_text(interval.end)})"


def nothing_to_do(strategy: str) -> str:
    return f"nothing to do: strategy {strategy} finds nothing to load"


def plan_table(found: Survey, settings: Settings, *, mapped: int, tasks: int) -> str:
    """The plan as lines of a task's log.

    Args:
        found: The plan and how it stands.
        settings: As of `plan_pairs`.
        mapped: How many chunks this DAG run runs, completed ones that it mapped before among them.
        tasks: How many mapped tasks run them.
    """
    text = str(mapped) if tasks == mapped else f"{mapped} in {tasks} tasks"
    (_, backfill_id), *pairs = [*plan_pairs(found, settings), ("mapped", text)]
    width = max(len(name) for name, _ in pairs)
    return "\n".join([f"Backfill {backfill_id}", *(f"  {name:<{width}}  {value}" for name, value in pairs)])

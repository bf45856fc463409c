"""How a plan stands in the ledger: what is done, by whom, and what is left to run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_provider_backfill.engine.coverage import ChunkCoverage, Standing
from airflow_provider_backfill.engine.estimates import Estimate, Measured, estimate
from airflow_provider_backfill.engine.inputs import PlanInputs
from airflow_provider_backfill.engine.intervals import Interval, merge
from airflow_provider_backfill.engine.ledger_reader import LedgerReader
from airflow_provider_backfill.engine.overlaps import Overlap, Resolved, check_restated, overlapping, resolve
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from airflow_provider_backfill.exceptions import RestateError


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A plan, and the ledger's answer to it.

    Args:
        plan: The plan.
        rows: Its rows in the ledger, in order; None when the dataset has no ledger.
        coverage: How each chunk that is not completed stands to other backfills, by chunk id.
        elsewhere: Chunks whose rows are other backfills', found so now or recorded before.
        before: What is missing between the first chunk that any backfill of the source has loaded and the
            window, in order, none touching another.
        resolved: What is to be done for these.
        runs: What a run would load, an interval each attempt, in order.
        history: What the source took before.
        estimate: What ``runs`` will take.
    """

    plan: BackfillPlan
    rows: tuple[ChunkRow, ...] | None
    coverage: Mapping[str, ChunkCoverage]
    elsewhere: tuple[ChunkCoverage, ...]
    before: tuple[Interval, ...]
    resolved: Resolved
    runs: tuple[Interval, ...]
    history: Sequence[Measured]
    estimate: Estimate

    def restated(self, chunk_ids: Collection[str] | None = None) -> Survey:
        """As it is estimated if completed chunks are to be loaded again; default all."""
        own = {row.chunk_id: row.interval for row in self._own}
        theirs = {
            each.chunk.chunk_id: each.chunk.interval
            for each in self.elsewhere
            if each.standing is Standing.COVERED
        }
        again = (
            interval
            for chunk_id, interval in {**theirs, **own}.items()
            if chunk_ids is None or chunk_id in chunk_ids
        )
        runs = tuple(sorted((*self.runs, *again)))
        return replace(
            self,
            runs=runs,
            estimate=estimate(runs, self.history, concurrency=self.estimate.concurrency),
        )

    def check_restated(self) -> None:
        """Refuse to load all chunks again where others have loaded some, which would be left as they are.

        Raises:
            OverlapError: It names the backfill.
        """
        check_restated(self.plan, self.elsewhere, self.resolved.overlap)

    @property
    def _own(self) -> list[ChunkRow]:
        """Chunks whose rows this backfill has loaded."""
        return [row for row in self.rows or () if row.status is ChunkStatus.COMPLETED and not row.covered_by]

    @property
    def done(self) -> frozenset[str]:
        """Ids of the chunks that need not run: completed, or covered by other backfills."""
        completed = {row.chunk_id for row in self.rows or () if row.status is ChunkStatus.COMPLETED}
        return frozenset(completed | {each.chunk.chunk_id for each in self.resolved.covered})

    @property
    def completed(self) -> int:
        """How many chunks this backfill has loaded."""
        return len(self.done) - self.covered

    @property
    def held(self) -> int:
        return sum(row.held for row in self.rows or ())

    @property
    def failed(self) -> int:
        return sum(row.status is ChunkStatus.FAILED or row.lapsed for row in self.rows or ())

    @property
    def covered(self) -> int:
        """How many chunks other backfills have loaded."""
        recorded = {row.chunk_id for row in self.rows or () if row.covered_by}
        return len(recorded | {each.chunk.chunk_id for each in self.resolved.covered})

    @property
    def due(self) -> int:
        """How many chunks a run would load, failed ones and parts of chunks among them."""
        return len(self.plan.chunks) - len(self.done) - self.held

    @property
    def gaps(self) -> tuple[Interval, ...]:
        """What of the window nobody has loaded, in order, none touching another."""
        return merge(part for each in self.coverage.values() for part in each.missing)


def without_ledger(plan: BackfillPlan, overlap: str, concurrency: int = 1) -> Survey:
    """The survey of a plan for a dataset that has no ledger."""
    return _survey(plan, None, _due(plan), overlap, concurrency)


def survey(
    reader: LedgerReader, inputs: PlanInputs, plan: BackfillPlan, overlap: str, concurrency: int = 1
) -> Survey:
    """Compare a plan with the ledger; reads only, in a number of statements that does not grow.

    Args:
        reader: The ledger.
        inputs: What stands beside it.
        plan: The plan.
        overlap: What a chunk means that other backfills have loaded in part; see `resolve`.
        concurrency: How many chunks run at once, for the estimate; default 1.

    Raises:
        PlanConflictError: The stored rows of this backfill were made from different inputs.
        OverlapError: Another backfill has loaded some of a chunk, and ``overlap`` does not allow for that.
        RestateError: A chunk would replace rows that cannot be told from others.
        ChoiceError: ``overlap`` is none of its choices.
    """
    if not reader.exists():
        return without_ledger(plan, overlap, concurrency)
    reader.check(plan)
    inputs.check(plan.backfill_id, plan.selected)
    rows = tuple(reader.chunks(plan.backfill_id))
    done = {row.chunk_id for row in rows if row.status is ChunkStatus.COMPLETED}
    found = reader.coverage(plan)
    coverage = [each for each in found if each.chunk.chunk_id not in done]
    own = {row.chunk_id for row in rows if row.status is ChunkStatus.COMPLETED and not row.covered_by}
    elsewhere = tuple(each for each in found if each.others and each.chunk.chunk_id not in own)
    # A version that is to be replaced has the rows, and so has another backfill: a person has to settle that.
    standing = {row.chunk_id for row in rows if row.load_ids and row.claimable}
    for each in coverage if overlap != Overlap.RELOAD else ():
        if each.others and each.chunk.chunk_id in standing:
            raise overlapping(plan, each, Overlap.REFUSE)
    before, history = reader.missing_before(plan), reader.history(plan.source_name)
    made = _survey(
        plan, rows, coverage, overlap, concurrency, elsewhere=elsewhere, before=before, history=history
    )
    made.resolved.check()
    replaced = {other.backfill_id for each in made.resolved.reloaded for other in each.replaced}
    if replaced:
        reader.check_replaceable(plan, replaced)
    if replaced and (unknown := reader.unknown_loads_inside(plan)):
        raise RestateError(f"backfill {unknown}", "the ledger does not say which rows it loaded")
    return made


def together(found: Sequence[Survey], again: Iterable[Interval] = ()) -> Estimate | None:
    """What several plans of one source will take; None without plans.

    Args:
        found: The plans.
        again: What else is loaded, before them; default nothing.
    """
    if not found:
        return None
    runs = [*again, *(interval for each in found for interval in each.runs)]
    return estimate(runs, found[0].history, concurrency=found[0].estimate.concurrency)


def _due(plan: BackfillPlan) -> list[ChunkCoverage]:
    return [ChunkCoverage(chunk=chunk, others=(), missing=(chunk.interval,)) for chunk in plan.chunks]


def _survey(
    plan: BackfillPlan,
    rows: tuple[ChunkRow, ...] | None,
    coverage: Sequence[ChunkCoverage],
    overlap: str,
    concurrency: int,
    *,
    elsewhere: tuple[ChunkCoverage, ...] = (),
    before: tuple[Interval, ...] = (),
    history: Sequence[Measured] = (),
) -> Survey:
    resolved = resolve(plan, coverage, overlap)
    return Survey(
        plan=plan,
        rows=rows,
        coverage={each.chunk.chunk_id: each for each in coverage},
        elsewhere=elsewhere,
        before=before,
        resolved=resolved,
        runs=resolved.runs,
        history=history,
        estimate=estimate(resolved.runs, history, concurrency=concurrency),
    )

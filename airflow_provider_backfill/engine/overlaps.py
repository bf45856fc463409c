"""What becomes of a chunk that other backfills have done in part: refused, trimmed or reloaded (pure).

How trimming keeps identities stable
------------------------------------
The plan stays as it was asked for: all its chunks, with their ``chunk_id`` and ``run_id``, whatever is
covered. Each gap of a partly covered chunk becomes a backfill of its own: the window is the gap, the chunk
size is the gap's exact length, so it has one chunk. When its gaps are done, the chunk is wholly covered,
and is recorded as completed with ``covered_by`` like any other.

- *Nothing shifts.* A plan is a function of the request alone. Coverage decides what runs, never what is
  numbered, so a seeded row stays the row of that chunk however often the window is planned again.
  Whoever runs a chunk runs its gaps, so a mapped list of chunks has one length and order, too.
- *A gap's identity is a function of the gap alone*: ``sha256(source|gap_from|gap_to|length)``, the length
  with the time zone as ever. Requests of other windows or chunk sizes that leave the same gap share it, and
  resume each other's work on it. It is what the operator's single chunk and ``chunked-backfill run`` with
  these bounds would make, so a person can name it.
- *Planned again, it is the same gap or none.* One chunk is done wholly or not at all, so a gap never
  shrinks by its own work. If somebody else did part of it meanwhile, what is left is another, smaller gap
  with another id; the pending row of the former is wholly covered once the smaller one is done, and is
  recorded as such.

Turning the whole request into backfills of its gaps (each of the same chunk size) was the other way. Their
windows shrink with every chunk that completes, so a second planning would find other ids, and the rows
seeded first would be left behind; and no row would bear the id of what was asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from airflow_provider_backfill.engine.coverage import ChunkCoverage, Completed, Standing, ranges
from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.plan import BackfillPlan, Chunk, exact_length, make_plan
from airflow_provider_backfill.engine.window import Window
from airflow_provider_backfill.exceptions import ChoiceError, OverlapError


class Overlap(StrEnum):
    """What a chunk that is partly covered means."""

    REFUSE = "refuse"
    TRIM = "trim"
    RELOAD = "reload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """A chunk of which only the gaps run.

    Args:
        coverage: The chunk, and what has been done of it.
        gaps: A backfill each gap, of one chunk, in order.
    """

    coverage: ChunkCoverage
    gaps: tuple[BackfillPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """A chunk that runs as a whole and takes the place of what lies inside it.

    Whoever publishes it deletes the rows of the replaced chunks in the same transaction, and records those as
    covered by this backfill: they have no rows of their own any more.

    Args:
        chunk: The chunk.
        replaced: The completed chunks inside it, in order.
    """

    chunk: Chunk
    replaced: tuple[Completed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A chunk that may not run.

    Args:
        coverage: The chunk, and what has been done of it.
        neighbours: The completed chunks in its way, in order; for ``reload`` those that reach out of it.
    """

    coverage: ChunkCoverage
    neighbours: tuple[Completed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What is to be done for each chunk of a plan; each chunk is in one of the five. `resolve` makes it.

    Args:
        plan: The plan.
        overlap: How partly covered chunks were treated.
        due: Chunks to run as they are.
        covered: Chunks to record as completed with ``covered_by``, and not to run.
        trimmed: Chunks of which the gaps run.
        reloaded: Chunks that replace others.
        refused: Chunks that may not run.
    """

    plan: BackfillPlan
    overlap: Overlap
    due: tuple[Chunk, ...]
    covered: tuple[ChunkCoverage, ...]
    trimmed: tuple[Trimmed, ...]
    reloaded: tuple[Reloaded, ...]
    refused: tuple[Refused, ...]

    @property
    def runs(self) -> tuple[Interval, ...]:
        """What would be loaded, an interval each attempt, in order."""
        whole = [*self.due, *(each.chunk for each in self.reloaded)]
        parts = (chunk for each in self.trimmed for gap in each.gaps for chunk in gap.chunks)
        return tuple(sorted(chunk.interval for chunk in (*whole, *parts)))

    def check(self) -> None:
        """Refuse the plan if any of its chunks may not run.

        Raises:
            OverlapError: It names the first backfill in the way, and what it has done in this window.
        """
        if self.refused:
            in_the_way = [other for each in self.refused for other in each.neighbours]
            raise _refusal(self.plan, in_the_way, self.overlap)


_REMEDIES = {
    Overlap.REFUSE: (
        'pass overlap="trim" to load only the gaps, overlap="reload" to replace what lies inside a chunk, '
        "or the window and chunk of that backfill to resume it"
    ),
    Overlap.RELOAD: (
        "a chunk may replace only what lies wholly inside it, so choose a window and a chunk whose bounds "
        'cut none of these, or pass overlap="trim" to load only the gaps'
    ),
}


_RESTATED = (
    'pass overlap="reload" too, which replaces what lies wholly inside a chunk, or the window and chunk of '
    "that backfill to load it again"
)


def check_restated(plan: BackfillPlan, elsewhere: Iterable[ChunkCoverage], overlap: str) -> None:
    """Refuse to load chunks again whose rows are other backfills' and stay.

    Args:
        plan: The plan, for its source and zone.
        elsewhere: Its chunks that others have loaded.
        overlap: What that means.

    Raises:
        OverlapError: One would be found covered, and not be loaded.
    """
    stay = [each for each in elsewhere if overlap != Overlap.RELOAD or _cut_across(each)]
    if stay:
        raise _refusal(plan, [other for each in stay for other in each.others], Overlap.REFUSE, _RESTATED)


def overlapping(plan: BackfillPlan, coverage: ChunkCoverage, overlap: Overlap) -> OverlapError:
    """Why one chunk that is partly covered may not run.

    Args:
        plan: The plan, for its source and zone.
        coverage: The chunk.
        overlap: ``refuse`` or ``reload``.
    """
    neighbours = _cut_across(coverage) if overlap == Overlap.RELOAD else coverage.others
    return _refusal(plan, neighbours or coverage.others, overlap)


def _refusal(
    plan: BackfillPlan, in_the_way: Sequence[Completed], overlap: Overlap, remedy: str | None = None
) -> OverlapError:
    backfill_id = in_the_way[0].backfill_id
    # A neighbour that reaches over several chunks is in the way of each, and counts once.
    theirs = dict.fromkeys(other for other in in_the_way if other.backfill_id == backfill_id)
    done = ranges((other.interval for other in theirs), plan.window.timezone)
    return OverlapError(plan.source, backfill_id, done, len(theirs), remedy or _REMEDIES[overlap])


def resolve(plan: BackfillPlan, coverage: Iterable[ChunkCoverage], overlap: str = Overlap.REFUSE) -> Resolved:
    """Decide what is to be done for each chunk of a plan.

    Args:
        plan: The plan.
        coverage: How its chunks stand, from `classify`.
        overlap: What a partly covered chunk means. ``refuse``: it may not run. ``trim``: only its gaps run.
            ``reload``: it runs and replaces what lies wholly inside it, unless it would cut a neighbour
            across. Default ``refuse``.

    Raises:
        ChoiceError: ``overlap`` is none of these.
    """
    if overlap not in list(Overlap):
        raise ChoiceError("overlap", overlap, tuple(Overlap))
    due: list[Chunk] = []
    covered: list[ChunkCoverage] = []
    trimmed: list[Trimmed] = []
    reloaded: list[Reloaded] = []
    refused: list[Refused] = []
    for each in coverage:
        if each.standing is Standing.DUE:
            due.append(each.chunk)
        elif each.standing is Standing.COVERED:
            covered.append(each)
        elif overlap == Overlap.TRIM:
            trimmed.append(trim(plan, each))
        elif neighbours := each.others if overlap == Overlap.REFUSE else _cut_across(each):
            refused.append(Refused(coverage=each, neighbours=neighbours))
        else:
            reloaded.append(Reloaded(chunk=each.chunk, replaced=each.others))
    return Resolved(
        plan=plan,
        overlap=Overlap(overlap),
        due=tuple(due),
        covered=tuple(covered),
        trimmed=tuple(trimmed),
        reloaded=tuple(reloaded),
        refused=tuple(refused),
    )


def trim(plan: BackfillPlan, coverage: ChunkCoverage) -> Trimmed:
    """The gaps of a partly covered chunk as backfills of their own, see the head of this module."""
    return Trimmed(coverage=coverage, gaps=tuple(_backfill_of(plan, gap) for gap in coverage.missing))


def _backfill_of(plan: BackfillPlan, gap: Interval) -> BackfillPlan:
    timezone = plan.window.timezone
    window = Window(start=gap.start, end=gap.end, timezone=timezone)
    return replace(make_plan(plan.source, window, exact_length(gap, timezone)), selected=plan.selected)


def _cut_across(coverage: ChunkCoverage) -> tuple[Completed, ...]:
    inside = coverage.chunk.interval.contains
    return tuple(other for other in coverage.others if not inside(other.interval))

"""A whole backfill in one place: refuse, plan, seed. :mod:`drive` runs it in one or more processes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_backfill.engine.controls import BackfillControls, Control
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.fields import ChunkFields
from airflow_provider_backfill.engine.inputs import PlanInputs
from airflow_provider_backfill.engine.intervals import Interval, stored_bound
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.ledger_reader import LedgerReader
from airflow_provider_backfill.engine.maps import TaskMaps
from airflow_provider_backfill.engine.metrics import MetricsSink
from airflow_provider_backfill.engine.overlaps import Overlap
from airflow_provider_backfill.engine.plan import BackfillPlan, make_plan, source_key
from airflow_provider_backfill.engine.records import ChunkRow
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import BoundedBy, SourceSpec
from airflow_provider_backfill.engine.survey import Survey, survey, without_ledger
from airflow_provider_backfill.engine.visits import TaskVisits
from airflow_provider_backfill.engine.window import ChunkSize, Window

if TYPE_CHECKING:
    from dlt.extract.source import DltSource

    from airflow_provider_backfill.engine.runner import Runner


def cut(
    spec: SourceSpec, source: DltSource, window: Window, chunk: ChunkSize, settings: Settings
) -> BackfillPlan:
    """Cut a window into chunks that the ledger can keep.

    Args:
        spec: Which source it is for.
        source: A source that it made, whose name may be part of the identity.
        window: What to cover.
        chunk: How to cut it.
        settings: The limits.

    Raises:
        RefusedError: The chunk, their number, the bounds or the source's name are unusable.
    """
    plan = make_plan(
        source_key(spec.source_name(source), spec.resources),
        window,
        chunk,
        max_chunks=settings.max_chunks,
        warn_chunks=settings.warn_chunks,
    )
    for name, bound in (("start", window.start), ("end", window.end)):
        stored_bound(bound, name)
    return replace(plan, selected=tuple(sorted(source.selected_resources)))


def first_fields(
    spec: SourceSpec, window: Window | None, chunk: ChunkSize | None, settings: Settings
) -> ChunkFields | None:
    """What the first chunk fills into the arguments of a source that is bounded by them; None for others.

    Args:
        spec: The source.
        window: What to cover; None for any day.
        chunk: How to cut it; None likewise.
        settings: The limits.

    Raises:
        RefusedError: The chunk or their number are unusable.
    """
    if spec.bounded_by != BoundedBy.KWARGS:
        return None
    window = window or Window.parse("2026-01-01", "2026-01-02")
    # Many chunks are warned of when the plan is made.
    most = settings.max_chunks
    first = window.split(chunk, most, most)[0] if chunk else window.interval
    return ChunkFields(interval=first, timezone=window.timezone, run_id="0" * 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """What was asked for.

    Args:
        source: The dlt source to read.
        target: The dataset to load into.
        window: What to cover.
        chunk: How to cut it.
        settings: Limits, lease and waits; default those of the environment.
        overlap: What a chunk means that other backfills have loaded in part: ``refuse``, ``trim`` (only the
            gaps run) or ``reload`` (it replaces what lies within it); default ``refuse``.
        sink: Where metrics go, which must not raise; default None, which measures nothing.
    """

    source: SourceSpec
    target: Target
    window: Window
    chunk: ChunkSize
    settings: Settings = field(default_factory=Settings.from_environment)
    overlap: str = Overlap.REFUSE
    sink: MetricsSink | None = None

    def plan(self) -> BackfillPlan:
        """Cut the window and refuse what cannot be backfilled. Nothing is written.

        Raises:
            RefusedError: The source, the window or the ledger rule this backfill out.
        """
        return self.look().plan

    def look(self, concurrency: int = 1) -> Survey:
        """As `plan`, with how the plan stands.

        Args:
            concurrency: How many chunks are to run at once, for the estimate; default 1.

        Raises:
            RefusedError: As `plan`.
        """
        source = self.source.load(first_fields(self.source, self.window, self.chunk, self.settings))
        plan = cut(self.source, source, self.window, self.chunk, self.settings)
        self._examine(source, plan)
        return self.survey(plan, concurrency)

    def cut(self) -> BackfillPlan:
        """Cut the window; whether the source can be backfilled is not looked at.

        Raises:
            RefusedError: The source, the window or the chunk are unusable.
        """
        source = self.source.load(first_fields(self.source, self.window, self.chunk, self.settings))
        return cut(self.source, source, self.window, self.chunk, self.settings)

    def _examine(self, source: DltSource, plan: BackfillPlan) -> None:
        """Refuse a source that cannot be bounded, with all that is wrong with it at once."""
        from airflow_provider_backfill.engine.preflight import examine, refuse

        intervals = [chunk.interval for chunk in plan.chunks]
        refuse(examine(self.source, source, intervals, self.window.timezone))

    def survey(self, plan: BackfillPlan, concurrency: int = 1) -> Survey:
        """How the plan stands in the ledger. Only reads.

        Raises:
            RefusedError: The ledger has other inputs for it, or other backfills are in its way.
        """
        if not self.target.exists():
            return without_ledger(plan, self.overlap, concurrency)
        with self.target.connect(self.settings.file_lock_timeout_seconds, read_only=True) as session:
            reader, inputs = LedgerReader(session, self.target), PlanInputs(session, self.target)
            return survey(reader, inputs, plan, self.overlap, concurrency)

    def gaps(self) -> tuple[Interval, ...]:
        """What of the window no backfill of the source has loaded, in order, none touching another.

        Raises:
            RefusedError: The source or the window rule a backfill out.
        """
        plan = self.cut()
        if not self.target.exists():
            return (self.window.interval,)
        with self.target.connect(self.settings.file_lock_timeout_seconds, read_only=True) as session:
            reader = LedgerReader(session, self.target)
            return reader.missing(plan) if reader.exists() else (self.window.interval,)

    def seed(self, plan: BackfillPlan) -> list[ChunkRow]:
        """Write the plan's rows and drop what dead attempts left; returns the backfill's rows in order.

        Chunks that other backfills have loaded are completed from the start.

        Raises:
            RefusedError: As `survey`.
        """
        with self.target.connect(self.settings.file_lock_timeout_seconds) as session:
            ledger = Ledger(session, self.target)
            ledger.prepare(*(beside(session, self.target) for beside in (PlanInputs, TaskMaps, TaskVisits)))
            found = survey(ledger, PlanInputs(session, self.target), plan, self.overlap)
            ledger.seed(plan)
            ledger.cover(plan.backfill_id, found.resolved.covered)
            PlanInputs(session, self.target).remember(plan.backfill_id, plan.selected)
            self._sweep(session, plan)
            return ledger.chunks(plan.backfill_id)

    def sweep(self, plan: BackfillPlan) -> None:
        """Drop what attempts left behind that have lost their claim, for example to a kill."""
        with self.target.connect(self.settings.file_lock_timeout_seconds) as session:
            self._sweep(session, plan)

    def _sweep(self, session: Session, plan: BackfillPlan) -> None:
        from airflow_provider_backfill.engine.stage import drop_leftovers

        drop_leftovers(session, self.target, plan.source_name, self.settings.work_root)

    def rows(self, plan: BackfillPlan) -> list[ChunkRow]:
        with self.target.connect(self.settings.file_lock_timeout_seconds) as session:
            return Ledger(session, self.target).chunks(plan.backfill_id)

    def check_restatable(self) -> None:
        """Refuse to load again what could not be replaced. Only reads.

        Raises:
            RestateError: Rows of the source cannot be told from others.
        """
        from airflow_provider_backfill.engine.restate import check_restatable

        source = self.source.load(first_fields(self.source, self.window, self.chunk, self.settings))
        wait = self.settings.file_lock_timeout_seconds
        check_restatable(self.target, source, self.source, wait, whole=self.window.interval.whole)

    def due(self, plan: BackfillPlan, since: datetime, limit: int) -> int:
        """How many chunks may be claimed now, counted no further than ``limit``; see `Ledger.claim_next`."""
        with self.target.connect(self.settings.file_lock_timeout_seconds) as session:
            ledger = Ledger(session, self.target)
            return len(ledger.due(plan, since, limit, reload=self.reloads))

    def control(self, plan: BackfillPlan) -> Control | None:
        """Who has paused or cancelled the backfill, which is seeded; None if nobody has."""
        with self.target.connect(self.settings.file_lock_timeout_seconds) as session:
            return BackfillControls(session, self.target).read(plan.backfill_id).get(plan.backfill_id)

    def clock(self) -> datetime:
        with self.target.connect(self.settings.file_lock_timeout_seconds) as session:
            return Ledger(session, self.target).clock()

    @property
    def runner(self) -> Runner:
        from airflow_provider_backfill.engine.runner import Runner

        return Runner(
            source=self.source,
            target=self.target,
            settings=self.settings,
            overlap=self.overlap,
            sink=self.sink,
        )

    @property
    def reloads(self) -> bool:
        return self.overlap == Overlap.RELOAD

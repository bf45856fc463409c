"""A whole backfill in one place: refuse, plan, seed. :mod:`drive` runs it in one or more processes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.inputs import PlanInputs
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.plan import BackfillPlan, make_plan, source_key
from airflow_provider_backfill.engine.records import ChunkRow
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import BoundFormatError

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.runner import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """What was asked for.

    Args:
        source: The dlt source to read.
        target: The dataset to load into.
        window: What to cover.
        chunk: How to cut it.
        settings: Limits, lease and waits; default those of the environment.
    """

    source: SourceSpec
    target: Target
    window: Window
    chunk: ChunkSize
    settings: Settings = field(default_factory=Settings.from_environment)

    def plan(self) -> BackfillPlan:
        """Cut the window and refuse what cannot be backfilled. Nothing is written.

        Raises:
            RefusedError: The source, the window or the ledger rule this backfill out.
        """
        from airflow_provider_backfill.engine.preflight import preflight

        source = self.source.load()
        plan = make_plan(
            source_key(self.source.source_name(source), self.source.resources),
            self.window,
            self.chunk,
            max_chunks=self.settings.max_chunks,
            warn_chunks=self.settings.warn_chunks,
        )
        if self.window.interval.whole:
            raise BoundFormatError(
                "start", self.window.start, "is a whole number, and chunks are bounds of time", "pass times"
            )
        preflight(source, plan.chunks[0].interval)
        plan = replace(plan, selected=tuple(sorted(source.selected_resources)))
        if self.target.exists():
            self.check(plan)
        return plan

    def check(self, plan: BackfillPlan) -> None:
        """Refuse a plan that the ledger contradicts, or whose chunks another backfill has done. Only reads.

        Raises:
            PlanConflictError: The ledger has this backfill with other inputs.
            OverlapError: Another backfill of the source has completed chunks in the window.
        """
        with self.target.connect(self.settings.file_lock_timeout_seconds, read_only=True) as session:
            Ledger(session, self.target).check(plan)
            PlanInputs(session, self.target).check(plan.backfill_id, plan.selected)

    def seed(self, plan: BackfillPlan) -> list[ChunkRow]:
        """Write the plan's rows and drop what dead attempts left; returns the backfill's rows in order."""
        with self.target.connect(self.settings.file_lock_timeout_seconds) as session:
            ledger = Ledger(session, self.target)
            ledger.prepare()
            ledger.seed(plan)
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

    def due(self, plan: BackfillPlan, since: datetime, limit: int) -> int:
        """How many chunks may be claimed now, counted no further than ``limit``; see `Ledger.claim_next`."""
        with self.target.connect(self.settings.file_lock_timeout_seconds) as session:
            return len(Ledger(session, self.target).due(plan, since, limit))

    def clock(self) -> datetime:
        with self.target.connect(self.settings.file_lock_timeout_seconds) as session:
            return Ledger(session, self.target).clock()

    @property
    def runner(self) -> Runner:
        from airflow_provider_backfill.engine.runner import Runner

        return Runner(source=self.source, target=self.target, settings=self.settings)

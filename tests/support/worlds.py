"""A backfill in an empty database, and eyes to look at what it did."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.records import ChunkRow, Claim
from airflow_provider_backfill.engine.runner import Outcome, this_claimant
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.stage import stage_prefix
from airflow_provider_backfill.engine.window import ChunkSize, Window
from tests.support.ledgers import steal_chunk
from tests.support.sources import day

IDS = 'SELECT id, "order" FROM @events ORDER BY id'
ITEMS = (
    "SELECT e.id, count(*) FROM @events e JOIN @events__items i ON i._dlt_parent_id = e._dlt_id"
    " GROUP BY e.id ORDER BY e.id"
)


class World:
    """A backfill of January 2024's first days by day, and eyes to look at what it did."""

    def __init__(self, target: Target, settings: Settings) -> None:
        self.target = target
        self.settings = settings

    def backfill(self, source: Callable[..., Any] | str, days: int = 3, **spec: Any) -> Backfill:
        return Backfill(
            source=SourceSpec(reference=source, **spec),
            target=self.target,
            window=Window(start=day(1, 0), end=day(days + 1, 0)),
            chunk=ChunkSize.parse("1d"),
            settings=self.settings,
        )

    def seeded(
        self, source: Callable[..., Any] | str, days: int = 3, **spec: Any
    ) -> tuple[Backfill, BackfillPlan]:
        backfill = self.backfill(source, days, **spec)
        plan = backfill.plan()
        backfill.seed(plan)
        return backfill, plan

    def run(self, backfill: Backfill, plan: BackfillPlan, *numbers: int) -> list[Outcome]:
        return [
            backfill.runner.run_chunk(plan.backfill_id, f"{number - 1:06d}", this_claimant())
            for number in numbers or range(1, len(plan.chunks) + 1)
        ]

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        dataset = self.target.dialect.quote(self.target.dataset_name)
        with self.target.connect(5) as session:
            return session.execute(sql.replace("@", f"{dataset}."))

    def row(self, plan: BackfillPlan, number: int = 1) -> ChunkRow:
        with self.target.connect(5) as session:
            return Ledger(session, self.target).chunk(plan.backfill_id, f"{number - 1:06d}")

    def target_has(self, table: str) -> bool:
        with self.target.connect(5) as session:
            return bool(self.target.dialect.table_columns(session, self.target.dataset_name, table))

    def leftovers(self) -> list[str]:
        prefix = stage_prefix(self.target, "web_events")
        with self.target.connect(5) as session:
            stages = self.target.dialect.schemas(session, prefix)
        root = self.settings.work_root
        return stages + (os.listdir(root) if os.path.isdir(root) else [])


def steal(world: World, plan: BackfillPlan, number: int = 1) -> Claim:
    """What the holder of a chunk cannot prevent once its lease ran out."""
    return steal_chunk(world.target, plan, number - 1)

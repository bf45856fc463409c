"""The gaps of a chunk that other backfills have loaded in part, as backfills of their own."""

from __future__ import annotations

from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.inputs import PlanInputs
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.ledger_reader import plan_of
from airflow_provider_backfill.engine.overlaps import trim
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.records import ChunkRow


def seed_gaps(session: Session, target: Target, row: ChunkRow) -> list[BackfillPlan]:
    """Write a ledger row for each gap of a chunk; returns them, each a backfill of one chunk, in order."""
    ledger, inputs = Ledger(session, target), PlanInputs(session, target)
    [coverage] = ledger.coverage(plan_of(row))
    gaps = list(trim(plan_of(row), coverage).gaps)
    for gap in gaps:
        ledger.seed(gap)
        inputs.copy(row.backfill_id, gap.backfill_id)
    return gaps

"""Thresholds above which a plan has to be confirmed (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_backfill.engine.estimates import Estimate
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.window import MOST_CHUNKS
from airflow_provider_backfill.exceptions import TooManyChunksError, UnconfirmedPlanError

#: Why a plan has to be confirmed.
Objection = TooManyChunksError | UnconfirmedPlanError


def too_long(estimate: Estimate | None, settings: Settings) -> UnconfirmedPlanError | None:
    """Why a plan is so long that it has to be confirmed, by its usual duration; None also without history."""
    hours = settings.max_estimated_hours
    if estimate is None or estimate.seconds is None or hours is None:
        return None
    return UnconfirmedPlanError(str(estimate), hours) if estimate.seconds.median > hours * 3_600 else None


def objections(
    plans: Sequence[BackfillPlan], estimate: Estimate | None, settings: Settings
) -> list[Objection]:
    """Why plans have to be confirmed; empty if they need not be.

    Args:
        plans: What is to run.
        estimate: What they will take together; None if nothing is known.
        settings: The thresholds.
    """
    reasons: list[Objection] = [
        TooManyChunksError(len(plan.chunks), settings.max_chunks, str(plan.size), MOST_CHUNKS)
        for plan in plans
        if len(plan.chunks) > settings.max_chunks
    ]
    if long := too_long(estimate, settings):
        reasons.append(long)
    return reasons

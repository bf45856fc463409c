"""What the events of a task's outlets say about the rows that were loaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.version_compat import ASSET_TYPES, Context

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.intervals import Interval
    from airflow_provider_backfill.operators.base import TargetOperator


def describe_outlets(
    operator: TargetOperator,
    context: Context,
    *,
    backfill_id: str | Sequence[str],
    interval: Interval,
    chunks: int,
    records: int,
) -> None:
    """Add to the event of each asset that the operator has as an outlet what it is about.

    Airflow emits the events if the task succeeds. An alias is left alone, since it stands for no asset.

    Args:
        operator: The operator.
        context: Airflow's.
        backfill_id: The backfill.
        interval: What is loaded: the window, or the one chunk of the task.
        chunks: How many chunks it has.
        records: How many rows they have.
    """
    from airflow_provider_backfill.engine.intervals import bound_text

    extra: dict[str, Any] = {
        "backfill_id": backfill_id,
        "start": bound_text(interval.start),
        "end": bound_text(interval.end),
        "chunks": chunks,
        "records": records,
    }
    if operator.into:
        extra["into"] = operator.into
    for outlet in operator.outlets:
        if isinstance(outlet, ASSET_TYPES):
            context["outlet_events"][outlet].extra.update(extra)

"""The chunks of one task: which they are, and what has become of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.intervals import Interval
    from airflow_provider_backfill.engine.runner import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A chunk of a task.

    Args:
        backfill_id: The backfill.
        chunk_id: The chunk, six digits.
        interval: What it covers.
        timezone: Canonical zone of the window.
        total: How many chunks the backfill has.
    """

    backfill_id: str
    chunk_id: str
    interval: Interval
    timezone: str
    total: int

    @property
    def label(self) -> str:
        from airflow_provider_backfill.engine.plan import interval_label

        return interval_label(self.interval, self.timezone)

    def line(self, text: str) -> str:
        from airflow_provider_backfill.engine.report import chunk_line

        return chunk_line(int(self.chunk_id) + 1, self.total, self.interval, text)


def covered_by(parts: Sequence[Part]) -> Interval:
    """What all of them cover. They are consecutive, in either direction."""
    from airflow_provider_backfill.engine.intervals import Interval

    first, last = sorted((parts[0], parts[-1]), key=lambda part: part.chunk_id)
    return Interval(first.interval.start, last.interval.end)


def result_of(parts: Sequence[Part], outcomes: Sequence[Outcome], label: str) -> dict[str, Any]:
    """A task's return value, see `ChunkedBackfillOperator`."""
    loaded = sum(outcome.loaded for outcome in outcomes)
    return {
        "backfill_id": parts[0].backfill_id,
        "chunk_ids": [part.chunk_id for part in parts],
        "chunk": label,
        "status": "completed" if loaded else "skipped",
        "completed": loaded,
        "skipped": len(outcomes) - loaded,
        "rows": sum(outcome.records for outcome in outcomes),
        "bytes": sum(outcome.bytes for outcome in outcomes),
        "dropped": sum(outcome.dropped for outcome in outcomes),
        "rejected": sum(outcome.rejected for outcome in outcomes),
        "warnings": sum(outcome.warnings for outcome in outcomes),
        "seconds": round(sum(outcome.seconds for outcome in outcomes), 3),
    }

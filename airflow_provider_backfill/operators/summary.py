"""What callbacks and notifiers find of a backfill in the context of its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_backfill.version_compat import (
    AirflowRescheduleException,
    AirflowSkipException,
    Context,
    TaskDeferred,
)

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.intervals import Interval
    from airflow_provider_backfill.operators.base import TargetOperator

#: The key in the context.
KEY = "backfill"


@contextmanager
def summarised(
    operator: TargetOperator, context: Context, task: str, source: str | None = None
) -> Iterator[dict[str, Any]]:
    """Put the summary of a task into its context, where its callbacks find it, and keep it up to date.

    Whoever runs the task adds to what is yielded. What it is for is said in docs/howto/notifications.md.

    Args:
        operator: The operator, rendered.
        context: Airflow's.
        task: What the task does: ``plan``, ``chunk``, ``report`` or ``handover``.
        source: What the source is called; None until the ledger says so.
    """
    summary: dict[str, Any] = {
        "task": task,
        "status": "running",
        "backfill_id": None,
        "source": source,
        "dataset": operator.into or operator.dataset_name,
        "error": None,
    }
    # The type of a context knows Airflow's own keys alone.
    cast("MutableMapping[str, Any]", context)[KEY] = summary
    try:
        yield summary
        if summary["status"] == "running":
            summary["status"] = "completed"
    except (AirflowRescheduleException, TaskDeferred):
        raise
    except AirflowSkipException as skipped:
        summary |= {"status": "skipped", "error": str(skipped)}
        raise
    except BaseException as error:
        # Airflow's timeout of a task is no Exception.
        summary |= {"status": "failed", "error": operator.redact(str(error)) or type(error).__name__}
        raise
    finally:
        summary["summary"] = _line(summary)


def about(summary: dict[str, Any], interval: Interval, timezone: str) -> None:
    """Add which interval the task is about."""
    from airflow_provider_backfill.engine.intervals import bound_text
    from airflow_provider_backfill.engine.plan import interval_label

    summary |= {
        "interval": interval_label(interval, timezone),
        "start": bound_text(interval.start),
        "end": bound_text(interval.end),
    }


def _line(summary: Mapping[str, Any]) -> str:
    """One line for people: which backfill, which part of it, and what has become of that."""
    what = f"{summary['source'] or 'a source'} into {summary['dataset']}"
    if interval := summary.get("interval"):
        what += f", {interval}"
    if "pending" in summary:
        names = ("completed", "skipped", "claimed_elsewhere", "failed", "pending")
        counts = ", ".join(f"{summary[name]} {name.replace('_', ' ')}" for name in names)
        return f"{what}: {counts} ({summary['total']} chunks)"
    said = f"{summary['task']} {summary['status']}"
    if (rows := summary.get("rows")) is not None:
        said += f", {rows} rows"
    if summary["error"]:
        said += f" ({' '.join(summary['error'].split())})"
    return f"{what}: {said}"

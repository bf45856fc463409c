"""The task that says how a backfill stands once its mapped tasks are through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.operators.assets import describe_outlets
from airflow_provider_backfill.operators.base import TargetOperator, airflow_errors
from airflow_provider_backfill.operators.metrics import tell_progress
from airflow_provider_backfill.operators.plan import AGAIN_KEY, BACKFILL_ID_KEY
from airflow_provider_backfill.operators.summary import about, summarised
from airflow_provider_backfill.version_compat import AirflowFailException, Context

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.records import ChunkRow
    from airflow_provider_backfill.engine.report import Tally

_LONGEST_LIST = 20


class BackfillReportOperator(TargetOperator):
    """Logs the tally of a backfill, pushes it, and fails unless every chunk of the window is completed.

    ``completed`` are the chunks that this DAG run loaded, ``skipped`` those that were completed before or by
    somebody else. The return value, which is pushed also when the task fails, is a dict: ``backfill_id``,
    ``completed``, ``skipped``, ``claimed_elsewhere``, ``failed``, ``pending``, ``total``, ``records``. Where
    a strategy chose several windows, or none, ``backfill_id`` is a list, and the numbers are of them all.

    If the window is covered, the event of each asset among its ``outlets`` has as its extra ``backfill_id``,
    ``start`` and ``end`` of the window, ``chunks``, ``records``.

    Args:
        plan_task_id: The whole id of the task that planned, with its groups.
        dataset_name: See `TargetOperator`, likewise all others.

    Raises:
        AirflowFailException: A chunk is not completed (the message names those that failed first, with the
            reason of each, then those that are held, then the pending ones by range), or nothing was planned.
    """

    def __init__(self, *, plan_task_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_task_id = plan_task_id

    def execute(self, context: Context) -> dict[str, Any]:
        with summarised(self, context, "report") as summary:
            return self._report(context, summary)

    def _report(self, context: Context, told: dict[str, Any]) -> dict[str, Any]:
        from airflow_provider_backfill.engine.intervals import Interval
        from airflow_provider_backfill.engine.report import Tally

        ti = context["ti"]
        planned = ti.xcom_pull(task_ids=self.plan_task_id, key=BACKFILL_ID_KEY)
        if planned is None:
            raise AirflowFailException(f"nothing was planned; see the log of task {self.plan_task_id}")
        again = ti.xcom_pull(task_ids=self.plan_task_id, key=AGAIN_KEY) or {}
        with airflow_errors(self.redact):
            windows = [self._recorded(each) for each in ([planned] if isinstance(planned, str) else planned)]
            others = [self._recorded(each) for each in again]
        totals = {rows[0].backfill_id: len(rows) for rows in (*others, *windows)}
        others = [[row for row in rows if row.chunk_id in again[row.backfill_id]] for rows in others]
        found = [*others, *windows]
        if found:
            told["source"] = found[0][0].source_section
        if windows:
            window = Interval(windows[0][0].window.start, windows[-1][0].window.end)
            about(told, window, windows[0][0].timezone)
        tallies = []
        for rows in found:
            own = (row for row in rows if (row.dag_id, row.dag_run_id) == (ti.dag_id, ti.run_id))
            tallies.append(Tally.of(rows, [row.chunk_id for row in own]))
            self.log.info("%s", tallies[-1])
        summary = _summary(planned, tallies)
        told |= summary
        for rows in windows:
            done = sum(row.status == "completed" for row in rows)
            tell_progress(self, context, rows[0].source_section, rows[0].backfill_id, done, len(rows))
        if not all(tally.covered for tally in tallies):
            # Airflow pushes the return value of a task that succeeds.
            ti.xcom_push(key="return_value", value=summary)
            raise AirflowFailException(_shortfall([row for rows in found for row in rows], totals))
        if windows:
            describe_outlets(
                self,
                context,
                backfill_id=planned,
                interval=window,
                chunks=summary["total"],
                records=summary["records"],
            )
        return summary

    def _recorded(self, backfill_id: str) -> list[ChunkRow]:
        rows = self.rows(backfill_id)
        if not rows:
            raise AirflowFailException(
                f"the ledger has no chunk of backfill {backfill_id}; clear the plan task"
            )
        return rows


def _summary(planned: str | list[str], tallies: Sequence[Tally]) -> dict[str, Any]:
    return {
        "backfill_id": planned,
        "completed": sum(tally.completed for tally in tallies),
        "skipped": sum(tally.skipped for tally in tallies),
        "claimed_elsewhere": sum(tally.claimed_elsewhere for tally in tallies),
        "failed": sum(len(tally.failed) for tally in tallies),
        "pending": sum(tally.pending for tally in tallies),
        "total": sum(tally.total for tally in tallies),
        "records": sum(tally.records for tally in tallies),
    }


def _shortfall(rows: Sequence[ChunkRow], totals: Mapping[str, int]) -> str:
    """What is missing, what went wrong first: there may be hundreds that nobody has tried behind it."""
    failed = [row for row in rows if row.status == "failed" or row.lapsed]
    held = [row for row in rows if row.held]
    pending = [row for row in rows if row.status == "pending"]
    counts = {"failed": len(failed), "held": len(held), "pending": len(pending)}
    groups = [*([row] for row in (*failed, *held)), *_runs(pending)]
    head = f"{sum(counts.values())} of {len(rows)} chunks not completed ("
    head += ", ".join(f"{count} {name}" for name, count in counts.items() if count) + "):"
    lines = [head, *(_line(group, totals[group[0].backfill_id]) for group in groups[:_LONGEST_LIST])]
    if more := sum(map(len, groups[_LONGEST_LIST:])):
        lines.append(f"and {more} more")
    return "\n- ".join(lines) + "\nclear the tasks of these chunks, or run the same window again, to resume"


def _runs(rows: Sequence[ChunkRow]) -> list[list[ChunkRow]]:
    """Chunks that follow each other, together."""
    runs: list[list[ChunkRow]] = []
    for row in rows:
        before = runs[-1][-1] if runs else row
        if (before.backfill_id, before.number + 1) == (row.backfill_id, row.number):
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _line(group: Sequence[ChunkRow], total: int) -> str:
    from airflow_provider_backfill.engine.intervals import bound_text
    from airflow_provider_backfill.engine.report import chunk_line

    first, last = group[0], group[-1]
    if len(group) > 1:
        whole = f"[{bound_text(first.interval.start)} → {bound_text(last.interval.end)})"
        return f"chunks {first.number} to {last.number} of {total} {whole}: pending"
    if first.held:
        state = f"held by {first.claimed_by or 'an unknown worker'}"
    elif first.status == "pending":
        state = "pending"
    else:
        state = f"failed ({first.error or f'the lease of {first.claimed_by} ran out'})"
    return chunk_line(first.number, total, first.interval, state)

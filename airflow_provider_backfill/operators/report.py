"""The task that says how a backfill stands once its mapped tasks are through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.operators.assets import describe_outlets
from airflow_provider_backfill.operators.base import TargetOperator, airflow_errors
from airflow_provider_backfill.operators.plan import BACKFILL_ID_KEY
from airflow_provider_backfill.version_compat import AirflowFailException, Context

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.records import ChunkRow
    from airflow_provider_backfill.engine.report import Tally

_LONGEST_LIST = 20


class BackfillReportOperator(TargetOperator):
    """Logs the tally of a backfill, pushes it, and fails unless every chunk of the window is completed.

    ``completed`` are the chunks that this DAG run loaded, ``skipped`` those that were completed before or by
    somebody else. The return value, which is pushed also when the task fails, is a dict: ``backfill_id``,
    ``completed``, ``skipped``, ``claimed_elsewhere``, ``failed``, ``pending``, ``total``, ``records``.

    If the window is covered, the event of each asset among its ``outlets`` has as its extra ``backfill_id``,
    ``start`` and ``end`` of the window, ``chunks``, ``records``.

    Args:
        plan_task_id: The whole id of the task that planned, with its groups.
        dataset_name: See `TargetOperator`, likewise the next two.
        conn_id: The Airflow connection.
        destination: A dlt destination.

    Raises:
        AirflowFailException: A chunk is not completed (the message names each, with its reason), or nothing
            was planned.
    """

    def __init__(self, *, plan_task_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan_task_id = plan_task_id

    def execute(self, context: Context) -> dict[str, Any]:
        from airflow_provider_backfill.engine.report import Tally

        ti = context["ti"]
        backfill_id = ti.xcom_pull(task_ids=self.plan_task_id, key=BACKFILL_ID_KEY)
        if not backfill_id:
            raise AirflowFailException(f"nothing was planned; see the log of task {self.plan_task_id}")
        with airflow_errors(self.redact):
            rows = self._rows(backfill_id)
        if not rows:
            raise AirflowFailException(
                f"the ledger has no chunk of backfill {backfill_id}; clear the plan task"
            )
        own = (row for row in rows if (row.dag_id, row.dag_run_id) == (ti.dag_id, ti.run_id))
        tally = Tally.of(rows, [row.chunk_id for row in own])
        self.log.info("%s", tally)
        summary = _summary(tally)
        if not tally.covered:
            # Airflow pushes the return value of a task that succeeds.
            ti.xcom_push(key="return_value", value=summary)
            raise AirflowFailException(_shortfall(rows))
        describe_outlets(
            self,
            context,
            backfill_id=backfill_id,
            interval=rows[0].window,
            chunks=tally.total,
            records=tally.records,
        )
        return summary

    def _rows(self, backfill_id: str) -> list[ChunkRow]:
        from airflow_provider_backfill.engine.ledger import Ledger

        target = self.hook.target
        with target.connect(self.settings.file_lock_timeout_seconds, read_only=True) as session:
            return Ledger(session, target).chunks(backfill_id)


def _summary(tally: Tally) -> dict[str, Any]:
    return {
        "backfill_id": tally.backfill_id,
        "completed": tally.completed,
        "skipped": tally.skipped,
        "claimed_elsewhere": tally.claimed_elsewhere,
        "failed": len(tally.failed),
        "pending": tally.pending,
        "total": tally.total,
        "records": tally.records,
    }


def _shortfall(rows: Sequence[ChunkRow]) -> str:
    missing = list(_missing(rows))
    lines = [f"{len(missing)} of {len(rows)} chunks not completed:", *missing[:_LONGEST_LIST]]
    if len(missing) > _LONGEST_LIST:
        lines.append(f"and {len(missing) - _LONGEST_LIST} more")
    return "\n- ".join(lines) + "\nclear the tasks of these chunks, or run the same window again, to resume"


def _missing(rows: Sequence[ChunkRow]) -> Iterator[str]:
    from airflow_provider_backfill.engine.report import chunk_line

    for row in rows:
        if row.status == "completed":
            continue
        if row.held:
            state = f"held by {row.claimed_by or 'an unknown worker'}"
        elif row.status == "pending":
            state = "pending"
        else:
            state = f"failed ({row.error or f'the lease of {row.claimed_by} ran out'})"
        yield chunk_line(row.number, len(rows), row.interval, state)

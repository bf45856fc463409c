"""The task that plans a window for the mapped tasks behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.operators.base import SourceOperator, airflow_errors, this_task
from airflow_provider_backfill.version_compat import Context, conf

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.plan import BackfillPlan
    from airflow_provider_backfill.engine.records import ChunkRow, Claimant

#: The key of the XCom that names the backfill, whether or not there is anything to map.
BACKFILL_ID_KEY = "backfill_id"


class BackfillPlanOperator(SourceOperator):
    """Cuts a window into chunks, writes them to the ledger, and returns those that are to be run.

    The return value is a list of arguments for ``ChunkedBackfillOperator.partial(...).expand_kwargs(...)``,
    one dict a chunk, in order. Chunks that are completed are left out. In one DAG run the list stays as it
    was first, also when the task is cleared and runs again: what has been completed since is mapped again
    and does nothing.

    Args:
        chunk: How long a chunk is (templated): ``<N>s|m|h`` of elapsed time, ``<N>d|w|mo`` of calendar time,
            or how many whole numbers.
        source: See `SourceOperator`, likewise all others.

    Raises:
        AirflowFailException: The window, the source or the destination is refused. Nothing was written.
    """

    template_fields: Sequence[str] = (*SourceOperator.template_fields, "chunk")

    def __init__(self, *, chunk: str | int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.chunk = chunk

    def execute(self, context: Context) -> list[dict[str, Any]]:
        with airflow_errors(self.redact):
            plan, rows = self._seed(context)
            due = self._mapped(plan, rows, this_task(context))
        self.log.info(
            "Backfill %s: %d chunks of %s, %d completed, %d mapped",
            plan.backfill_id,
            len(plan.chunks),
            plan.chunk_size,
            sum(row.status == "completed" for row in rows),
            len(due),
        )
        context["ti"].xcom_push(key=BACKFILL_ID_KEY, value=plan.backfill_id)
        return due

    def _seed(self, context: Context) -> tuple[BackfillPlan, list[ChunkRow]]:
        from airflow_provider_backfill.engine.backfill import Backfill
        from airflow_provider_backfill.engine.window import ChunkSize
        from airflow_provider_backfill.exceptions import MapLengthError
        from airflow_provider_backfill.hooks.backfill import prepare_dlt

        prepare_dlt()
        backfill = Backfill(
            source=self.source_spec,
            window=self.window(context),
            chunk=ChunkSize.parse(self.chunk),
            target=self.hook.target,
            settings=self.settings,
        )
        plan = backfill.plan()
        due = len(plan.chunks) - backfill.completed(plan)
        limit = conf.getint("core", "max_map_length")
        if due > limit:
            # Airflow itself would say so after the rows are written.
            raise MapLengthError(due, limit)
        return plan, backfill.seed(plan)

    def _mapped(self, plan: BackfillPlan, rows: list[ChunkRow], planner: Claimant) -> list[dict[str, Any]]:
        from airflow_provider_backfill.engine.intervals import bound_text
        from airflow_provider_backfill.engine.maps import TaskMaps

        target = self.hook.target
        due = [row.chunk_id for row in rows if row.status != "completed"]
        with target.connect(self.settings.file_lock_timeout_seconds) as session:
            mapped = TaskMaps(session, target).first(planner, plan.backfill_id, due)
        chunks = {chunk.chunk_id: chunk for chunk in plan.chunks}
        return [
            {
                "backfill_id": plan.backfill_id,
                "chunk_id": chunk.chunk_id,
                "total": len(plan.chunks),
                "interval_label": plan.label(chunk),
                "start": bound_text(chunk.interval.start),
                "end": bound_text(chunk.interval.end),
            }
            for chunk in map(chunks.__getitem__, mapped)
        ]

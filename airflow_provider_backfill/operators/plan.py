"""The task that plans a window for the mapped tasks behind it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.operators.arguments import positive, truth
from airflow_provider_backfill.operators.base import SourceOperator, airflow_errors, this_task
from airflow_provider_backfill.version_compat import Context, conf

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.backfill import Backfill
    from airflow_provider_backfill.engine.plan import BackfillPlan, Chunk
    from airflow_provider_backfill.engine.records import Claimant

#: The key of the XCom that names the backfill, whether or not there is anything to map.
BACKFILL_ID_KEY = "backfill_id"
#: Which chunk comes first.
ORDERS = ("forward", "backward")


class BackfillPlanOperator(SourceOperator):
    """Cuts a window into chunks, writes them to the ledger, and returns those that are to be run.

    The return value is a list of arguments for ``ChunkedBackfillOperator.partial(...).expand_kwargs(...)``,
    one dict a task, in order. Chunks that are completed are left out. In one DAG run the list stays as it
    was first, also when the task is cleared and runs again: what has been completed since is mapped again
    and does nothing.

    Args:
        chunk: How long a chunk is (templated): ``<N>s|m|h`` of elapsed time, ``<N>d|w|mo`` of calendar time,
            or how many whole numbers.
        order: ``forward``, the earliest chunk first, or ``backward`` (templated); default ``forward``.
        chunks_per_task: How many consecutive chunks one mapped task runs (templated); default 1.
        restate: Whether completed chunks are loaded again, and replaced (templated); default False. Once a
            DAG run: when the task is cleared and runs again, what was loaded again meanwhile stays.
        max_active_chunks: How many chunks may run at once, for the estimate; default 1.
        handover: The pipeline that the window will be handed over to (templated), so that what stands against
            that is refused now; default None.
        source: See `SourceOperator`, likewise all others.

    Raises:
        AirflowFailException: The window, the source or the destination is refused. Nothing was written.
    """

    template_fields: Sequence[str] = (
        *SourceOperator.template_fields,
        "chunk",
        "order",
        "chunks_per_task",
        "restate",
        "handover",
    )

    def __init__(
        self,
        *,
        chunk: str | int,
        order: str = "forward",
        chunks_per_task: int | str = 1,
        restate: bool | str = False,
        max_active_chunks: int = 1,
        handover: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.chunk = chunk
        self.order = order
        self.chunks_per_task = chunks_per_task
        self.restate = restate
        self.max_active_chunks = max_active_chunks
        self.handover = handover

    def execute(self, context: Context) -> list[dict[str, Any]]:
        with airflow_errors(self.redact):
            return self._plan(context)

    def _plan(self, context: Context) -> list[dict[str, Any]]:
        from airflow_provider_backfill.engine.report import plan_table

        backfill = self._backfill(context)
        restate = truth("restate", self.restate)
        plan = backfill.plan()
        if self.handover:
            from airflow_provider_backfill.engine.handover import Handover

            Handover.of(backfill, self.handover, into=self.into).check()
        if restate:
            backfill.check_restatable()
        found = backfill.survey(plan, self.max_active_chunks)
        groups = self._groups(plan, frozenset() if restate else found.done)
        limit = conf.getint("core", "max_map_length")
        if len(groups) > limit:
            from airflow_provider_backfill.exceptions import MapLengthError

            # Airflow itself would say so after the rows are written.
            raise MapLengthError(sum(map(len, groups)), limit, tasks=len(groups))
        found = replace(found, rows=tuple(backfill.seed(plan)))
        groups = self._first(backfill, plan, this_task(context), restate=restate)
        self.log.info("%s", plan_table(found, mapped=sum(map(len, groups)), tasks=len(groups)))
        context["ti"].xcom_push(key=BACKFILL_ID_KEY, value=plan.backfill_id)
        return [_arguments(plan, group) for group in groups]

    def _backfill(self, context: Context) -> Backfill:
        from airflow_provider_backfill.engine.backfill import Backfill
        from airflow_provider_backfill.engine.window import ChunkSize
        from airflow_provider_backfill.hooks.backfill import prepare_dlt

        prepare_dlt()
        return Backfill(
            source=self.source_spec,
            window=self.window(context),
            chunk=ChunkSize.parse(self.chunk),
            target=self.hook.target,
            settings=self.settings,
            overlap=self.overlap,
        )

    def _groups(self, plan: BackfillPlan, done: Collection[str]) -> list[tuple[Chunk, ...]]:
        from airflow_provider_backfill.engine.plan import grouped
        from airflow_provider_backfill.exceptions import ChoiceError

        if self.order not in ORDERS:
            raise ChoiceError("order", self.order, ORDERS)
        due = [chunk for chunk in plan.chunks if chunk.chunk_id not in done]
        if self.order == "backward":
            due.reverse()
        return grouped(due, positive("chunks_per_task", self.chunks_per_task))

    def _first(
        self, backfill: Backfill, plan: BackfillPlan, planner: Claimant, *, restate: bool
    ) -> list[tuple[Chunk, ...]]:
        """What this DAG run maps, as it was first; completed chunks are restated with that, and only then."""
        from airflow_provider_backfill.engine.ledger import Ledger
        from airflow_provider_backfill.engine.maps import TaskMaps

        target = self.hook.target
        with target.connect(self.settings.file_lock_timeout_seconds) as session:
            ledger = Ledger(session, target)

            def restated() -> None:
                if restate:
                    ledger.restate_all(plan.backfill_id)

            # Another run may have completed some since they were counted.
            done = frozenset() if restate else ledger.completed(plan.backfill_id)
            groups = [tuple(chunk.chunk_id for chunk in group) for group in self._groups(plan, done)]
            first = TaskMaps(session, target).first(planner, plan.backfill_id, groups, restated)
        chunks = {chunk.chunk_id: chunk for chunk in plan.chunks}
        return [tuple(map(chunks.__getitem__, group)) for group in first]


def _arguments(plan: BackfillPlan, group: Sequence[Chunk]) -> dict[str, Any]:
    """What one mapped task is given."""
    from airflow_provider_backfill.engine.intervals import bound_text
    from airflow_provider_backfill.engine.plan import span

    whole = span(group)
    return {
        "backfill_id": plan.backfill_id,
        "chunks": [
            [chunk.chunk_id, bound_text(chunk.interval.start), bound_text(chunk.interval.end)]
            for chunk in group
        ],
        "total": len(plan.chunks),
        "interval_label": plan.label(whole),
        "start": bound_text(whole.start),
        "end": bound_text(whole.end),
    }

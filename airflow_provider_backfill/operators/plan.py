"""The task that plans a window for the mapped tasks behind it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.operators.arguments import given, hours, natural, positive, truth
from airflow_provider_backfill.operators.base import SourceOperator, airflow_errors, this_task
from airflow_provider_backfill.operators.metrics import tell_progress
from airflow_provider_backfill.operators.summary import about, summarised
from airflow_provider_backfill.version_compat import Context, conf

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.choice import Choice, Chosen
    from airflow_provider_backfill.engine.maps import Group, Mapped
    from airflow_provider_backfill.engine.plan import BackfillPlan
    from airflow_provider_backfill.engine.records import Claimant
    from airflow_provider_backfill.engine.survey import Survey

#: The key of the XCom that names the backfill, also when nothing is mapped: a list, unless it is one.
BACKFILL_ID_KEY = "backfill_id"
#: The key of the XCom with chunks of other backfills that are loaded again, by backfill; if there are any.
AGAIN_KEY = "again"
#: Which chunk comes first.
ORDERS = ("forward", "backward")


class BackfillPlanOperator(SourceOperator):
    """Cuts a window into chunks, writes them to the ledger, and returns those that are to be run.

    The return value is a list of arguments for ``ChunkedBackfillOperator.partial(...).expand_kwargs(...)``,
    one dict a task, in order. Chunks that are completed are left out. In one DAG run the list stays as it
    was first, also when the task is cleared and runs again: what has been completed since is mapped again
    and does nothing, and a strategy does not choose anew.

    Args:
        chunk: How long a chunk is (templated): ``<N>s|m|h`` of elapsed time, ``<N>d|w|mo`` of calendar time,
            or how many whole numbers.
        order: ``forward``, the earliest chunk first, or ``backward`` (templated); default ``forward``.
        chunks_per_task: How many consecutive chunks one mapped task runs (templated); default 1.
        strategy: Which windows to load (templated), see `Asked`: ``window``, from ``start`` to ``end``,
            ``full``, ``gaps``, ``forward_only`` or ``since_failed``; default ``window``. For the others,
            ``start`` is by default where the history of the source starts, and ``end`` now.
        since: For ``forward_only``, before which nothing is loaded (templated); default None.
        lookback: How many chunks before a new window are loaded again (templated); default 0.
        grain: What bounds are aligned to (templated): ``hour``, ``day``, ``week`` or ``month``; default None.
        restate: Whether completed chunks are loaded again, and replaced (templated); default False. Once a
            DAG run: when the task is cleared and runs again, what was loaded again meanwhile stays.
        max_active_chunks: How many chunks may run at once, for the estimate; default 1.
        confirm: Whether the plan may be above a threshold, ``max_chunks`` or ``max_estimated_hours``
            (templated); default False, which refuses it. What this DAG run has mapped before may be so.
        max_estimated_hours: The plan has to be confirmed if it is estimated to take longer (templated), in
            hours; default None, which takes the setting of that name.
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
        "strategy",
        "since",
        "lookback",
        "grain",
        "confirm",
        "max_estimated_hours",
    )

    def __init__(
        self,
        *,
        chunk: str | int,
        order: str = "forward",
        chunks_per_task: int | str = 1,
        restate: bool | str = False,
        strategy: str = "window",
        since: Any = None,
        lookback: int | str = 0,
        grain: str | None = None,
        max_active_chunks: int = 1,
        confirm: bool | str = False,
        max_estimated_hours: float | str | None = None,
        handover: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.chunk = chunk
        self.order = order
        self.chunks_per_task = chunks_per_task
        self.restate = restate
        self.strategy = strategy
        self.since = since
        self.lookback = lookback
        self.grain = grain
        self.max_active_chunks = max_active_chunks
        self.confirm = confirm
        self.max_estimated_hours = max_estimated_hours
        self.handover = handover

    def execute(self, context: Context) -> list[dict[str, Any]]:
        with (
            summarised(self, context, "plan", self.source_label) as summary,
            airflow_errors(self.redact),
        ):
            return self._plan(context, summary)

    def _plan(self, context: Context, summary: dict[str, Any]) -> list[dict[str, Any]]:
        from airflow_provider_backfill.engine.thresholds import objections

        choice, planner = self._choice(context), this_task(context)
        restate, thresholds = truth("restate", self.restate), choice.settings
        before = self._mapped_before(choice, planner)
        if before or truth("confirm", self.confirm):
            choice = replace(choice, settings=thresholds.confirmed())
        chosen = choice.make() if before is None or choice.plain else self._remembered(choice, before)
        found = [backfill.look(self.max_active_chunks) for backfill in chosen.windows]
        plans = [each.plan for each in found]
        if self.handover and len(chosen.windows) == 1:
            from airflow_provider_backfill.engine.handover import Handover

            Handover.of(chosen.windows[0], self.handover, into=self.into).check()
        if restate and chosen.windows:
            chosen.windows[0].check_restatable()
        chosen.check()
        if restate:
            for each in found:
                each.check_restated()
            found = [each.restated() for each in found]
        if reasons := objections(plans, chosen.estimate(found), choice.settings):
            raise reasons[0]
        self._check_length(
            self._groups(chosen, plans, [frozenset() if restate else each.done for each in found])
        )
        chosen.record(f"{planner.dag_id} {planner.dag_run_id}")
        found = [
            replace(each, rows=tuple(backfill.seed(each.plan)))
            for backfill, each in zip(chosen.windows, found, strict=True)
        ]
        mapped = self._first(choice, chosen, plans, planner, restate=restate)
        self._say(replace(choice, settings=thresholds), chosen, found, mapped)
        self._push(context, mapped)
        self._sum_up(summary, found, mapped)
        # What is restated is completed still, as `found` has it.
        for each in [] if restate else found:
            plan = each.plan
            counts = len(each.done), len(plan.chunks)
            tell_progress(self, context, plan.source_name, plan.backfill_id, *counts)
        recorded = {plan.backfill_id: plan for plan in (*(each.plan for each in chosen.again), *plans)}
        return [_arguments(recorded[backfill_id], chunk_ids) for backfill_id, chunk_ids in mapped.groups]

    def _choice(self, context: Context) -> Choice:
        from airflow_provider_backfill.engine.choice import Choice, read_bounds
        from airflow_provider_backfill.engine.window import ChunkSize
        from airflow_provider_backfill.hooks.backfill import prepare_dlt

        prepare_dlt()
        start, end, timezone = given(self.start), given(self.end), self.timezone
        if self.strategy == "window":
            window = self.window(context)
            start, end, timezone = window.start, window.end, window.timezone
        chunk = ChunkSize.parse(self.chunk)
        limit = hours("max_estimated_hours", self.max_estimated_hours)
        bounds = read_bounds(chunk, start=start, end=end, since=given(self.since), timezone=timezone)
        return Choice(
            **bounds,
            source=self.source_spec,
            target=self.hook.target,
            chunk=chunk,
            strategy=self.strategy,
            lookback=natural("lookback", self.lookback),
            grain=given(self.grain),
            settings=replace(self.settings, max_estimated_hours=limit) if limit else self.settings,
            overlap=self.overlap,
        )

    def _mapped_before(self, choice: Choice, planner: Claimant) -> Mapped | None:
        """What this DAG run has mapped before; None if nothing yet, or if it does not matter."""
        from airflow_provider_backfill.engine.maps import TaskMaps

        target = choice.target
        if (choice.plain and choice.settings.max_estimated_hours is None) or not target.exists():
            return None
        with target.connect(self.settings.file_lock_timeout_seconds, read_only=True) as session:
            return TaskMaps(session, target).recall(planner, choice.request)

    def _remembered(self, choice: Choice, mapped: Mapped) -> Chosen:
        """What led to the list that this DAG run has mapped before."""
        from airflow_provider_backfill.engine.choice import Chosen
        from airflow_provider_backfill.engine.ledger import Ledger

        target = choice.target
        with target.connect(self.settings.file_lock_timeout_seconds, read_only=True) as session:
            plan_of = Ledger(session, target).recorded_plan
            plans = [plan_of(backfill_id) for backfill_id in mapped.backfill_ids]
            return Chosen(
                windows=tuple(choice.backfill(plan.window, plan.size) for plan in plans),
                again=tuple(
                    choice.again(plan_of(backfill_id), chunk_ids)
                    for backfill_id, chunk_ids in mapped.again.items()
                ),
            )

    def _check_length(self, groups: Sequence[Group]) -> None:
        from airflow_provider_backfill.exceptions import MapLengthError

        limit = conf.getint("core", "max_map_length")
        if len(groups) > limit:
            # Airflow itself would say so after the rows are written.
            chunks = sum(len(chunk_ids) for _, chunk_ids in groups)
            raise MapLengthError(chunks, limit, tasks=len(groups))

    def _groups(
        self, chosen: Chosen, plans: Sequence[BackfillPlan], done: Sequence[Collection[str]]
    ) -> list[Group]:
        """What to map, without what is done of each plan."""
        from airflow_provider_backfill.engine.plan import grouped
        from airflow_provider_backfill.exceptions import ChoiceError

        if self.order not in ORDERS:
            raise ChoiceError("order", self.order, ORDERS)
        size = positive("chunks_per_task", self.chunks_per_task)
        parts = [
            (each.plan, [chunk for chunk in each.plan.chunks if chunk.chunk_id in each.chunk_ids])
            for each in chosen.again
        ]
        parts += [
            (plan, [chunk for chunk in plan.chunks if chunk.chunk_id not in ids])
            for plan, ids in zip(plans, done, strict=True)
        ]
        if self.order == "backward":
            parts = [(plan, chunks[::-1]) for plan, chunks in reversed(parts)]
        return [
            (plan.backfill_id, tuple(chunk.chunk_id for chunk in group))
            for plan, chunks in parts
            for group in grouped(chunks, size)
        ]

    def _first(
        self,
        choice: Choice,
        chosen: Chosen,
        plans: Sequence[BackfillPlan],
        planner: Claimant,
        *,
        restate: bool,
    ) -> Mapped:
        """What this DAG run maps, as it was first; completed chunks are restated with that, and only then."""
        from airflow_provider_backfill.engine.ledger import Ledger
        from airflow_provider_backfill.engine.maps import Mapped, TaskMaps

        target, ids = choice.target, tuple(plan.backfill_id for plan in plans)
        nothing = Mapped(backfill_ids=(), groups=())
        if not ids and not target.exists():
            return nothing
        with target.connect(self.settings.file_lock_timeout_seconds) as session:
            ledger, maps = Ledger(session, target), TaskMaps(session, target)
            if not ids:
                if not ledger.exists():
                    return nothing
                ledger.prepare(maps)

            def restated() -> None:
                for backfill_id in ids if restate else ():
                    ledger.restate_all(backfill_id)

            # Another run may have completed some since they were counted.
            done = [frozenset() if restate else ledger.completed(backfill_id) for backfill_id in ids]
            mapped = Mapped(backfill_ids=ids, groups=tuple(self._groups(chosen, plans, done)))
            return maps.first(planner, choice.request, mapped, restated)

    def _say(self, choice: Choice, chosen: Chosen, found: Sequence[Survey], mapped: Mapped) -> None:
        from airflow_provider_backfill.engine.report import (
            estimate_line,
            half_open,
            nothing_to_do,
            plan_table,
        )

        if not chosen:
            self.log.info("%s", nothing_to_do(choice.strategy))
        for done in chosen.done:
            self.log.info("recorded as done without running: %s", half_open(done.window.interval))
        for backfill_id, chunk_ids in mapped.again.items():
            numbers = ", ".join(str(int(chunk_id) + 1) for chunk_id in chunk_ids)
            self.log.info("loaded again: chunks %s of backfill %s", numbers, backfill_id)
        if len(found) + len(chosen.again) > 1 and (total := chosen.estimate(found)):
            self.log.info("together: %s", estimate_line(total, choice.settings))
        for each in found:
            groups = [ids for backfill_id, ids in mapped.groups if backfill_id == each.plan.backfill_id]
            self.log.info(
                "%s", plan_table(each, choice.settings, mapped=sum(map(len, groups)), tasks=len(groups))
            )

    def _sum_up(self, summary: dict[str, Any], found: Sequence[Survey], mapped: Mapped) -> None:
        from airflow_provider_backfill.engine.intervals import Interval

        plans = [each.plan for each in found]
        summary |= {
            "backfill_id": _alone(mapped.backfill_ids),
            "total": sum(len(plan.chunks) for plan in plans),
            "mapped": sum(len(chunk_ids) for _, chunk_ids in mapped.groups),
        }
        if plans:
            summary["source"] = plans[0].source_name
            whole = Interval(plans[0].window.start, plans[-1].window.end)
            about(summary, whole, plans[0].window.timezone)

    def _push(self, context: Context, mapped: Mapped) -> None:
        context["ti"].xcom_push(key=BACKFILL_ID_KEY, value=_alone(mapped.backfill_ids))
        if mapped.again:
            context["ti"].xcom_push(key=AGAIN_KEY, value=mapped.again)


def _alone(backfill_ids: Sequence[str]) -> str | list[str]:
    """A list, unless it is one."""
    return backfill_ids[0] if len(backfill_ids) == 1 else list(backfill_ids)


def _arguments(plan: BackfillPlan, chunk_ids: Sequence[str]) -> dict[str, Any]:
    """What one mapped task is given."""
    from airflow_provider_backfill.engine.intervals import bound_text
    from airflow_provider_backfill.engine.plan import span

    # A plan's chunks are numbered from 0.
    group = [plan.chunks[int(chunk_id)] for chunk_id in chunk_ids]
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

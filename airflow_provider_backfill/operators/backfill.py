"""The operator that runs one chunk, alone or mapped over the chunks of a window."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.operators.base import SourceOperator, airflow_errors, concealed, this_task
from airflow_provider_backfill.operators.chunks import Part
from airflow_provider_backfill.operators.lineage import lineage
from airflow_provider_backfill.operators.summary import summarised
from airflow_provider_backfill.operators.task_try import TaskTry
from airflow_provider_backfill.operators.waiting import Wait
from airflow_provider_backfill.version_compat import Context, TaskGroup

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_provider_backfill.engine.intervals import Interval

#: What clearing the task of a completed chunk may mean.
ON_CLEAR = ("restate", "resume")


class ChunkedBackfillOperator(SourceOperator):
    """Loads one chunk of a window, exactly once.

    By itself it is a backfill of one chunk: ``[start, end)``, by default the DAG run's data interval, so that
    Airflow's own backfills drive it. With `expand_window` it is mapped over the chunks of a window. In either
    case a chunk that is completed already succeeds at once, without touching the source.

    Clearing the task of a completed chunk alone loads that chunk again, and its new rows replace the old ones
    in one transaction; until then the old ones stand. Clearing the whole DAG run, so that its window is
    planned again too, resumes it.

    While somebody else holds the chunk, for example a worker that was killed and whose lease has not run out,
    the task is deferred: it waits in Airflow's triggerer, takes no worker slot and spends no retry. The wait
    is over when the chunk is free, and after ``[chunked_backfill] wait_timeout_seconds`` in all.

    The return value is a dict: ``backfill_id``, ``chunk_ids``, ``chunk`` (their interval, for people),
    ``status`` (``completed``, or ``skipped`` if there was nothing to do), ``completed`` and ``skipped`` (how
    many chunks), ``rows``, ``bytes``, ``dropped`` (rows that the source gave outside), ``rejected`` (rows
    that assertions put into quarantine), ``warnings`` (assertions that only warn and did not hold),
    ``seconds``. The event of each asset among its ``outlets`` has as its extra ``backfill_id``, ``start``,
    ``end``, ``chunks`` and ``records``.

    Args:
        chunk: For a task that is not mapped, the size under which the ledger knows its one chunk
            (templated); default its exact length. A size that cuts the window in pieces is refused.
        backfill_id: The backfill that the chunks are part of, which has planned them; set when mapped,
            likewise the next three.
        chunks: Id, start and end of each chunk to run, in order.
        interval_label: Their interval for people.
        total: How many chunks the backfill has.
        on_clear: What it means that the task of a completed chunk is cleared alone (templated): ``restate``,
            to load it again, or ``resume``, to leave it; default ``restate``.
        max_active_chunks: How many chunks of one DAG run may run at once, for mapped tasks: one whose turn
            has not come gives its worker slot back and comes again. Default None, which does not look.
        max_failed_chunks: The task is skipped once so many before it have failed for good; default None,
            which does not look.
        deferrable: Whether to wait in the triggerer; default True. With False the task keeps its worker slot
            while it waits, and looks every five seconds. For an installation without a triggerer.
        source: See `SourceOperator`, likewise all others.

    Raises:
        AirflowFailException: No retry can mend it: the window, the source or the destination is refused.
        AirflowException: The attempt failed and left nothing behind, or somebody else holds the chunk.
        AirflowSkipException: ``max_failed_chunks`` before it have failed. The chunk stays pending.

    Example:
        >>> ChunkedBackfillOperator(
        ...     task_id="web_events",
        ...     source="sources.web_events:page_views",
        ...     conn_id="warehouse",
        ...     dataset_name="web_raw",
        ... )
    """

    template_fields: Sequence[str] = (
        *SourceOperator.template_fields,
        "chunk",
        "backfill_id",
        "chunks",
        "interval_label",
        "on_clear",
    )

    # For on_kill, and for lineage.
    _try: TaskTry | None = None

    def __init__(
        self,
        *,
        chunk: str | int | None = None,
        backfill_id: str | None = None,
        chunks: Sequence[Sequence[str]] | None = None,
        interval_label: str | None = None,
        total: int = 1,
        on_clear: str = "restate",
        max_active_chunks: int | None = None,
        max_failed_chunks: int | None = None,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.chunk = chunk
        self.backfill_id = backfill_id
        self.chunks = chunks
        self.interval_label = interval_label
        self.total = total
        self.on_clear = on_clear
        self.max_active_chunks = max_active_chunks
        self.max_failed_chunks = max_failed_chunks
        self.deferrable = deferrable

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        """Map the operator by hand; see Airflow's ``BaseOperator.partial``."""
        for name in {"source", "destination"} & set(kwargs):
            kwargs[name] = concealed(kwargs[name])
        return super().partial(**kwargs)

    @classmethod
    def expand_window(
        cls,
        *,
        task_id: str,
        source: Any,
        chunk: str | int,
        dataset_name: str,
        conn_id: str | None = None,
        destination: Any = None,
        into: str | None = None,
        start: Any = None,
        end: Any = None,
        timezone: str = "UTC",
        resources: Sequence[str] | str | None = None,
        source_name: str | None = None,
        source_kwargs: Mapping[str, Any] | None = None,
        cursor_format: Mapping[str, str] | str | None = None,
        bounded_by: str = "cursor",
        cursor_column: str | None = None,
        on_empty: str = "warn",
        overlap: str = "refuse",
        assertions: Mapping[str, Any] | Sequence[Any] | str | None = None,
        order: str = "forward",
        max_active_chunks: int = 1,
        max_failed_chunks: int | None = 1,
        chunks_per_task: int = 1,
        restate: bool | str = False,
        handover: str | None = None,
        strategy: str = "window",
        since: Any = None,
        lookback: int | str = 0,
        grain: str | None = None,
        confirm: bool | str = False,
        max_estimated_hours: float | str | None = None,
        **operator_kwargs: Any,
    ) -> TaskGroup:
        """Backfill a window chunk by chunk: a group of ``plan``, the mapped ``chunk``, and ``report``.

        Args:
            task_id: The group's id; its tasks are ``<task_id>.plan`` and so on.
            source: As of the operator, likewise all that are not said here to be otherwise.
            chunk: How long a chunk is: ``<N>s|m|h`` of elapsed time, ``<N>d|w|mo`` of calendar time, or how
                many whole numbers.
            dataset_name: The dataset.
            conn_id: The Airflow connection.
            destination: A dlt destination, instead.
            into: Another dataset, into which data and ledger go instead, to be looked at first; default None.
            start: First instant of the window; default the start of the DAG run's data interval.
            end: First instant behind the window; default the interval's end.
            timezone: IANA zone; default ``UTC``.
            resources: The source's resources to load; default all that it selects.
            source_name: What the source is called; default dlt's name of it.
            source_kwargs: Arguments for the source.
            cursor_format: What the values of the cursors are; default what their types say.
            bounded_by: ``cursor`` or ``kwargs``; default ``cursor``.
            cursor_column: What rows outside a chunk are told by; default None.
            on_empty: ``ok``, ``warn`` or ``fail``; default ``warn``.
            overlap: ``refuse``, ``trim`` or ``reload``; default ``refuse``.
            assertions: What must hold for the rows of a chunk; default none.
            order: Which chunk comes first: ``forward``, the earliest, or ``backward``, the latest; default
                ``forward``.
            max_active_chunks: How many tasks of one DAG run may run at once; default 1. While a chunk that
                failed has retries left, those behind it wait.
            max_failed_chunks: Once so many chunks have failed for good, those behind them are skipped, stay
                pending, and the report fails; default 1. None runs them all.
            chunks_per_task: How many consecutive chunks one mapped task runs, one by one, each claimed and
                published by itself; default 1. For windows of more chunks than Airflow maps
                (``[core] max_map_length``).
            restate: Whether chunks of the window that are completed are loaded again, and replaced
                (templated); default False. Once a DAG run, however often it is cleared.
            handover: Name of the dlt pipeline that loads the source forward (templated): a fourth task sets
                its bookmarks to the window's end once that is covered. Default None, which touches none.
            strategy: Which windows to load (templated): ``window``, the one from ``start`` to ``end``;
                ``full``, the whole history; ``gaps``, what is missing; ``forward_only``, nothing before
                ``since``; ``since_failed``, what is missing from the first failed chunk on. Default
                ``window``. For the others, ``start`` is by default where the history of the source starts,
                and ``end`` now.
            since: For ``forward_only`` (templated): what is missing before is recorded as done; default None.
            lookback: How many completed chunks before a new window are loaded again (templated); default 0.
            grain: What bounds are aligned to (templated): ``hour``, ``day``, ``week`` or ``month``; default
                None, which leaves them as they are.
            confirm: Whether the plan may be above a threshold, ``max_chunks`` or ``max_estimated_hours``
                (templated); default False, which fails ``plan`` at once, with nothing written.
            max_estimated_hours: The plan has to be confirmed if it is estimated to take longer (templated),
                in hours; default None, which takes the setting of that name.
            operator_kwargs: Any argument that Airflow's operators take. Each goes to all tasks, except
                that ``trigger_rule`` is the first task's and ``outlets`` are the last one's. ``deferrable``
                is the chunks'.

        Example:
            >>> ChunkedBackfillOperator.expand_window(
            ...     task_id="web_events",
            ...     source="sources.web_events:page_views",
            ...     conn_id="warehouse",
            ...     dataset_name="web_raw",
            ...     start="{{ params.start }}",
            ...     end="{{ params.end }}",
            ...     chunk="1d",
            ...     max_active_chunks=4,
            ...     retries=3,
            ... )
        """
        from airflow_provider_backfill.operators.group import window_group

        return window_group(
            cls,
            task_id=task_id,
            source_arguments={
                "source": source,
                "dataset_name": dataset_name,
                "conn_id": conn_id,
                "destination": destination,
                "into": into,
                "timezone": timezone,
                "resource_names": resources,
                "source_name": source_name,
                "source_kwargs": source_kwargs,
                "cursor_format": cursor_format,
                "bounded_by": bounded_by,
                "cursor_column": cursor_column,
                "on_empty": on_empty,
                "overlap": overlap,
                "assertions": assertions,
            },
            plan_arguments={
                "start": start,
                "end": end,
                "chunk": chunk,
                "order": order,
                "chunks_per_task": chunks_per_task,
                "restate": restate,
                "strategy": strategy,
                "since": since,
                "lookback": lookback,
                "grain": grain,
                "confirm": confirm,
                "max_estimated_hours": max_estimated_hours,
                "max_active_chunks": max_active_chunks,
                "handover": handover,
            },
            limits={"max_active_chunks": max_active_chunks, "max_failed_chunks": max_failed_chunks},
            operator_kwargs=operator_kwargs,
        )

    def execute(self, context: Context) -> dict[str, Any]:
        return self._load(context, None)

    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Go on after a deferral: all over again, except that the wait began earlier.

        Args:
            context: Airflow's; the templates have been rendered again.
            event: What `ChunkTrigger` fired.
        """
        # Over by the triggerer's clock is over: by a slower one here it would be deferred again and again.
        deadline = min(event["deadline"], time.time()) if event["over"] else event["deadline"]
        return self._load(context, Wait(deadline=deadline, holder=event["holder"]))

    def _load(self, context: Context, wait: Wait | None) -> dict[str, Any]:
        with (
            summarised(self, context, "chunk", self.source_label) as summary,
            airflow_errors(self.redact),
        ):
            self._try = TaskTry(self, context, wait, summary)
            return self._try.run()

    def on_kill(self) -> None:
        """Give the chunk in flight back at once; best effort, and nothing to do if there is none."""
        if self._try is not None:
            self._try.give_back()

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any] | None:
        """What OpenLineage is told of the task as it begins."""
        return lineage(self, None)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """What OpenLineage is told of the task once it has succeeded."""
        return lineage(self, self._try)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """What OpenLineage is told of the task once it has failed: it may have loaded some chunks."""
        return lineage(self, self._try)

    @property
    def restates(self) -> bool:
        """Whether the chunks of a task that is cleared alone are loaded again.

        Raises:
            ChoiceError: ``on_clear`` is neither of its choices.
        """
        from airflow_provider_backfill.exceptions import ChoiceError

        if self.on_clear not in ON_CLEAR:
            raise ChoiceError("on_clear", self.on_clear, ON_CLEAR)
        return self.on_clear == "restate"

    def parts(self, context: Context) -> list[Part]:
        """The chunks to run, in order; a task that is not mapped plans its own, and puts it in the ledger."""
        from airflow_provider_backfill.engine.window import Window

        if not self.backfill_id:
            return [self._lone_part(context)]
        windows = [
            (chunk_id, Window.parse(start, end, self.timezone)) for chunk_id, start, end in self.chunks or ()
        ]
        return [
            Part(
                backfill_id=self.backfill_id,
                chunk_id=chunk_id,
                interval=window.interval,
                timezone=window.timezone,
                total=self.total,
            )
            for chunk_id, window in windows
        ]

    def _lone_part(self, context: Context) -> Part:
        """The one chunk, planned and in the ledger."""
        from airflow_provider_backfill.engine.backfill import Backfill
        from airflow_provider_backfill.engine.plan import exact_length
        from airflow_provider_backfill.engine.window import ChunkSize
        from airflow_provider_backfill.exceptions import ChunkSizeError
        from airflow_provider_backfill.hooks.backfill import prepare_dlt

        window = self.window(context)
        size = ChunkSize.parse(self.chunk or exact_length(window.interval, window.timezone))
        if window.count(size) > 1:
            raise ChunkSizeError(
                str(size),
                f"cuts the window into {window.count(size)} chunks, and a task runs one",
                "leave chunk out to load the window as one chunk, or use expand_window(...)",
            )
        found = self._done_before(window.interval, context)
        if not found:
            prepare_dlt()
            backfill = Backfill(
                source=self.source_spec,
                target=self.hook.target,
                window=window,
                chunk=size,
                settings=self.settings,
                overlap=self.overlap,
            )
            plan = backfill.plan()
            backfill.seed(plan)
            found = plan.backfill_id, plan.chunks[0].chunk_id
        return Part(
            backfill_id=found[0],
            chunk_id=found[1],
            interval=window.interval,
            timezone=window.timezone,
            total=1,
        )

    def _done_before(self, interval: Interval, context: Context) -> tuple[str, str] | None:
        """For a retry, what an earlier try of this task has completed: found without a look at the source."""
        from airflow_provider_backfill.engine.maps import TaskMaps

        ti, target = context["ti"], self.hook.target
        cleared = ti.try_number - 1 == ti.max_tries - (self.retries or 0)
        if ti.try_number < 2 or cleared or not target.exists():
            return None
        with target.connect(self.settings.file_lock_timeout_seconds) as session:
            return TaskMaps(session, target).completed(
                this_task(context), interval, self.source_spec.resources
            )

"""The operator that runs one chunk, alone or mapped over the chunks of a window."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_backfill.operators.base import SourceOperator, airflow_errors, concealed, this_task
from airflow_provider_backfill.operators.stopping import InFlight, told_to_stop
from airflow_provider_backfill.operators.waiting import (
    BLIND_SECONDS,
    GRACE_SECONDS,
    POLL_SECONDS,
    SHORT_SECONDS,
    Wait,
)
from airflow_provider_backfill.version_compat import Context, TaskGroup

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.intervals import Interval
    from airflow_provider_backfill.engine.records import Claim
    from airflow_provider_backfill.engine.runner import Outcome


class ChunkedBackfillOperator(SourceOperator):
    """Loads one chunk of a window, exactly once.

    By itself it is a backfill of one chunk: ``[start, end)``, by default the DAG run's data interval, so that
    Airflow's own backfills drive it. With `expand_window` it is mapped over the chunks of a window. In either
    case a chunk that is completed already succeeds at once, without touching the source.

    While somebody else holds the chunk, for example a worker that was killed and whose lease has not run out,
    the task is deferred: it waits in Airflow's triggerer, takes no worker slot and spends no retry. The wait
    is over when the chunk is free, and after ``[chunked_backfill] wait_timeout_seconds`` in all.

    The return value is a dict: ``backfill_id``, ``chunk_id``, ``chunk`` (its interval, for people),
    ``status`` (``completed``, or ``skipped`` if there was nothing to do), ``rows``, ``bytes``, ``dropped``
    (rows that the source gave outside the chunk), ``seconds``.

    Args:
        chunk: For a task that is not mapped, the size under which the ledger knows its one chunk
            (templated); default its exact length. A size that cuts the window in pieces is refused.
        backfill_id: The backfill that the chunk is part of, which has planned it; set when mapped, likewise
            the next three.
        chunk_id: The chunk, six digits.
        interval_label: The chunk's interval for people.
        total: How many chunks the backfill has.
        deferrable: Whether to wait in the triggerer; default True. With False the task keeps its worker slot
            while it waits, and looks every five seconds. For an installation without a triggerer.
        source: See `SourceOperator`, likewise all others.

    Raises:
        AirflowFailException: No retry can mend it: the window, the source or the destination is refused.
        AirflowException: The attempt failed and left nothing behind, or somebody else holds the chunk.

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
        "chunk_id",
        "interval_label",
    )

    # The chunk in flight, for on_kill.
    _in_flight: InFlight | None = None

    def __init__(
        self,
        *,
        chunk: str | int | None = None,
        backfill_id: str | None = None,
        chunk_id: str | None = None,
        interval_label: str | None = None,
        total: int = 1,
        deferrable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.chunk = chunk
        self.backfill_id = backfill_id
        self.chunk_id = chunk_id
        self.interval_label = interval_label
        self.total = total
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
        max_active_chunks: int = 1,
        **operator_kwargs: Any,
    ) -> TaskGroup:
        """Backfill a window chunk by chunk: a group of ``plan``, the mapped ``chunk``, and ``report``.

        Args:
            task_id: The group's id; its tasks are ``<task_id>.plan`` and so on.
            source: As of the operator, likewise all but the last two.
            chunk: How long a chunk is: ``<N>s|m|h`` of elapsed time, ``<N>d|w|mo`` of calendar time, or how
                many whole numbers.
            dataset_name: The dataset.
            conn_id: The Airflow connection.
            destination: A dlt destination, instead.
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
            max_active_chunks: How many chunks of one DAG run may run at once; default 1.
            operator_kwargs: Any argument that Airflow's operators take. Each goes to all three tasks, except
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
            chunk=chunk,
            source_arguments={
                "source": source,
                "dataset_name": dataset_name,
                "conn_id": conn_id,
                "destination": destination,
                "timezone": timezone,
                "resource_names": resources,
                "source_name": source_name,
                "source_kwargs": source_kwargs,
                "cursor_format": cursor_format,
                "bounded_by": bounded_by,
                "cursor_column": cursor_column,
                "on_empty": on_empty,
            },
            bounds={"start": start, "end": end},
            max_active_chunks=max_active_chunks,
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
        with airflow_errors(self.redact):
            part = self._mapped_part(context) if self.backfill_id else self._lone_part(context)
            self.interval_label = self.interval_label or part.label
            outcome = self._run(part, context, wait or Wait.of(self.settings.wait_timeout_seconds))
        if outcome.loaded:
            self.log.info("%s", part.line(_completed(outcome.records)))
        else:
            self.log.info("%s", part.line(f"already {_completed(outcome.records)}"))
        return {
            "backfill_id": part.backfill_id,
            "chunk_id": part.chunk_id,
            "chunk": self.interval_label,
            "status": "completed" if outcome.loaded else "skipped",
            "rows": outcome.records,
            "bytes": outcome.bytes,
            "dropped": outcome.dropped,
            "seconds": round(outcome.seconds, 3),
        }

    def on_kill(self) -> None:
        """Give the chunk in flight back at once; best effort, and nothing to do if there is none."""
        flight, self._in_flight = self._in_flight, None
        if flight is not None:
            flight.release()

    def _mapped_part(self, context: Context) -> _Part:
        window = self.window(context)
        return _Part(
            backfill_id=str(self.backfill_id),
            chunk_id=str(self.chunk_id),
            interval=window.interval,
            timezone=window.timezone,
            total=self.total,
        )

    def _lone_part(self, context: Context) -> _Part:
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
            )
            plan = backfill.plan()
            backfill.seed(plan)
            found = plan.backfill_id, plan.chunks[0].chunk_id
        return _Part(
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

    def _run(self, part: _Part, context: Context, wait: Wait) -> Outcome:
        from airflow_provider_backfill.engine.report import running
        from airflow_provider_backfill.engine.runner import Runner
        from airflow_provider_backfill.hooks.backfill import prepare_dlt

        target, ti = self.hook.target, context["ti"]

        def on_claim(claim: Claim) -> None:
            self._in_flight = InFlight(target=target, claim=claim)
            self.log.info("%s", part.line(running(claim.run_id)))
            prepare_dlt()

        runner = Runner(source=self.source_spec, target=target, settings=self.settings)
        try:
            with told_to_stop(self.on_kill):
                return self._patiently(
                    part,
                    wait,
                    lambda: runner.run_chunk(
                        part.backfill_id,
                        part.chunk_id,
                        this_task(context),
                        on_claim=on_claim,
                        will_retry=ti.try_number <= ti.max_tries,
                    ),
                )
        finally:
            self._in_flight = None

    def _patiently(self, part: _Part, wait: Wait, run: Callable[[], Outcome]) -> Outcome:
        """Wait while somebody else holds the chunk: a retry after a kill comes before its lease runs out."""
        from airflow_provider_backfill.exceptions import ChunkHeldError

        while True:
            try:
                return run()
            except ChunkHeldError as held:
                left = wait.left
                if held.lease_expires_at is None or left <= 0:
                    raise
                if held.holder != wait.holder:
                    wait = replace(wait, holder=held.holder)
                    self.log.info("%s", part.line(f"waiting, {held}"))
                seconds = held.seconds_left or 0
            if self.deferrable and seconds > SHORT_SECONDS:
                self._defer(part, wait, seconds)
            time.sleep(min(left, max(0.1, min(seconds, POLL_SECONDS))))

    def _defer(self, part: _Part, wait: Wait, seconds: float) -> NoReturn:
        """Leave the worker; the lease has ``seconds`` to live."""
        from airflow_provider_backfill.triggers.chunk import ChunkTrigger

        target = self.hook.target
        # A destination of dlt's may hold secrets, or a configuration that the triggerer does not have.
        watched = self.conn_id and target.destination is None and not target.dialect.single_process
        self.defer(
            trigger=ChunkTrigger(
                backfill_id=part.backfill_id,
                chunk_id=part.chunk_id,
                seconds=seconds if watched else min(seconds, BLIND_SECONDS),
                deadline=wait.deadline,
                holder=wait.holder,
                conn_id=self.conn_id if watched else None,
                dataset_name=self.dataset_name if watched else None,
            ),
            method_name="resume",
            # The trigger keeps to the deadline. This ends a wait that no triggerer looks after.
            timeout=timedelta(seconds=max(wait.left, 0) + GRACE_SECONDS),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """The chunk of a task."""

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


def _completed(records: int) -> str:
    from airflow_provider_backfill.engine.report import completed

    return completed(records)

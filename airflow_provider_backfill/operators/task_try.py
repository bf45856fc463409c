"""One try of the task that runs chunks: its turn, its claims, its waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow_provider_backfill.operators.assets import describe_outlets
from airflow_provider_backfill.operators.base import this_task
from airflow_provider_backfill.operators.chunks import Part, covered_by, result_of
from airflow_provider_backfill.operators.metrics import stats_of
from airflow_provider_backfill.operators.stopping import InFlight, told_to_stop
from airflow_provider_backfill.operators.summary import about
from airflow_provider_backfill.operators.turns import Turn
from airflow_provider_backfill.operators.waiting import (
    BLIND_SECONDS,
    GRACE_SECONDS,
    PAUSED_SECONDS,
    POLL_SECONDS,
    SHORT_SECONDS,
    Wait,
)
from airflow_provider_backfill.version_compat import (
    AirflowRescheduleException,
    AirflowSkipException,
    Context,
    mapped_states,
)

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.destinations.base import Session
    from airflow_provider_backfill.engine.metrics import Metrics
    from airflow_provider_backfill.engine.records import ChunkRow, Claim
    from airflow_provider_backfill.engine.runner import Outcome, Runner
    from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator


class TaskTry:
    """One try of a `ChunkedBackfillOperator`'s task.

    Args:
        operator: The operator, rendered.
        context: Airflow's.
        wait: The wait that it was deferred for; None for a try that begins.
        summary: What callbacks will be told, which is added to.

    Attributes:
        parts: The chunks of the task, once it is known which they are.
        rows: What the ledger said of each that was looked at, by its id.
        outcomes: What has come of those that are through.
    """

    def __init__(
        self,
        operator: ChunkedBackfillOperator,
        context: Context,
        wait: Wait | None,
        summary: dict[str, Any],
    ) -> None:
        self._operator = operator
        self._context = context
        self._summary = summary
        self._ti = context["ti"]
        self.parts: list[Part] = []
        self.rows: dict[str, ChunkRow] = {}
        self.outcomes: list[Outcome] = []
        self._resumed = wait is not None
        self._wait = wait or self._new_wait()
        self._waits = self._resumed
        self._alone: bool | None = None
        self._restated = False
        self._in_flight: InFlight | None = None
        self._sink = stats_of(context)

    def run(self) -> dict[str, Any]:
        """Run every chunk of the task; see the operator."""
        from airflow_provider_backfill.engine.plan import interval_label

        operator = self._operator
        if operator.backfill_id and not self._resumed:
            self._take_turn(operator.backfill_id)
        parts = self.parts = operator.parts(self._context)
        interval = covered_by(parts)
        self._summary |= {
            "backfill_id": parts[0].backfill_id,
            "chunk_ids": [part.chunk_id for part in parts],
            "total": parts[0].total,
        }
        about(self._summary, interval, parts[0].timezone)
        operator.interval_label = operator.interval_label or interval_label(interval, parts[0].timezone)
        for part in parts:
            self.outcomes.append(self._load(part, parts))
        result = result_of(parts, self.outcomes, operator.interval_label)
        self._summary |= result
        describe_outlets(
            operator,
            self._context,
            backfill_id=result["backfill_id"],
            interval=interval,
            chunks=len(parts),
            records=result["rows"],
        )
        return result

    def give_back(self) -> None:
        """Release the chunk in flight; nothing to do if there is none."""
        flight, self._in_flight = self._in_flight, None
        if flight is not None:
            flight.release()

    @property
    def _cleared(self) -> bool:
        """Somebody cleared the task, whether or not with others. A plain retry counts on."""
        ti = self._ti
        return bool(ti.try_number > 1 and ti.try_number - 1 == ti.max_tries - (self._operator.retries or 0))

    def _take_turn(self, backfill_id: str) -> None:
        """Come back later, or not at all, if the tasks before this one say so."""
        operator = self._operator
        if operator.max_active_chunks is None and operator.max_failed_chunks is None:
            return
        states = mapped_states(self._ti)
        turn = Turn.of(states, int(self._ti.map_index or 0), operator.max_active_chunks or len(states))
        most = operator.max_failed_chunks
        started_before = self._ti.try_number > 1 and not self._cleared
        stopped = most is not None and len(turn.failed) >= most and not started_before
        # One that was cleared alone runs all the same, which is found out once, when its turn has come.
        if not turn.come and (self._cleared or not stopped):
            pause = turn.pause(operator.retry_delay)
            operator.log.info(
                "%s waits for its turn: %d before it%s; it comes again in %d s",
                operator.interval_label,
                turn.ahead + len(turn.retrying),
                ", one will be tried again" if turn.retrying else "",
                pause.total_seconds(),
            )
            raise AirflowRescheduleException(datetime.now(UTC) + pause)  # type: ignore[no-untyped-call]
        if stopped:
            with operator.hook.target.connect(operator.settings.file_lock_timeout_seconds) as session:
                alone = self._begin(session, backfill_id)
            if not alone:
                raise AirflowSkipException(
                    f"{operator.interval_label} is left pending: {len(turn.failed)} before it failed for "
                    f"good (map index {', '.join(map(str, turn.failed))}), and max_failed_chunks is {most}"
                )

    def _begin(self, session: Session, backfill_id: str) -> bool:
        """Note that this try begins, once; returns whether the task was cleared alone."""
        from airflow_provider_backfill.engine.visits import TaskVisits

        if self._alone is None:
            stood = TaskVisits(session, self._operator.hook.target).begin(
                this_task(self._context), backfill_id, self._ti.try_number
            )
            self._alone = stood and self._cleared
        return self._alone

    def _load(self, part: Part, parts: Sequence[Part]) -> Outcome:
        from airflow_provider_backfill.engine.report import completed, running
        from airflow_provider_backfill.engine.runner import Runner
        from airflow_provider_backfill.hooks.backfill import prepare_dlt

        operator = self._operator
        target = operator.hook.target
        runner = Runner(
            source=operator.source_spec,
            target=target,
            settings=operator.settings,
            overlap=operator.overlap,
            sink=self._sink,
        )

        def on_read(row: ChunkRow) -> None:
            self.rows[part.chunk_id] = row
            self._summary["source"] = row.source_section

        def on_claim(claim: Claim) -> None:
            self._waited(runner, part)
            self._in_flight = InFlight(target=target, claim=claim)
            operator.log.info("%s", part.line(running(claim.run_id)))
            prepare_dlt()

        try:
            with told_to_stop(operator.on_kill):
                outcome = self._patiently(
                    runner,
                    part,
                    lambda: runner.run_chunk(
                        part.backfill_id,
                        part.chunk_id,
                        this_task(self._context),
                        before=lambda session: self._before(session, runner, parts),
                        on_read=on_read,
                        on_claim=on_claim,
                        will_retry=self._ti.try_number <= self._ti.max_tries,
                    ),
                )
        finally:
            self._in_flight = None
        self._waited(runner, part)
        if not outcome.loaded:
            self._metrics(runner, part).skipped(part.backfill_id, part.chunk_id)
        text = completed(outcome.records)
        operator.log.info("%s", part.line(text if outcome.loaded else f"already {text}"))
        self._wait = self._new_wait()
        return outcome

    def _before(self, session: Session, runner: Runner, parts: Sequence[Part]) -> None:
        """Once a try: return the chunks of a task that was cleared alone to ``pending``."""
        from airflow_provider_backfill.engine.controls import BackfillControls
        from airflow_provider_backfill.hooks.backfill import prepare_dlt

        if self._restated:
            return
        if self._cleared:
            # Before the try is noted: it begins once more when the backfill goes on.
            BackfillControls(session, self._operator.hook.target).check(parts[0].backfill_id)
        self._restated = True
        if self._begin(session, parts[0].backfill_id) and self._operator.restates:
            prepare_dlt()
            runner.restate(session, parts[0].backfill_id, [part.chunk_id for part in parts])

    def _new_wait(self) -> Wait:
        return Wait.of(self._operator.settings.wait_timeout_seconds)

    def _metrics(self, runner: Runner, part: Part) -> Metrics:
        return runner.metrics(self.rows[part.chunk_id].source_section)

    def _waited(self, runner: Runner, part: Part) -> None:
        """The wait is over, if there was one."""
        if self._waits:
            self._waits = False
            seconds = self._operator.settings.wait_timeout_seconds - self._wait.left
            self._metrics(runner, part).waited(seconds, part.backfill_id)

    def _patiently(self, runner: Runner, part: Part, run: Callable[[], Outcome]) -> Outcome:
        """Wait while somebody else holds the chunk: a retry after a kill comes before its lease runs out.

        While the backfill is paused, the task comes again without a worker slot; where it is cancelled, the
        task is skipped.
        """
        from airflow_provider_backfill.exceptions import (
            BackfillCancelledError,
            BackfillPausedError,
            ChunkHeldError,
        )

        while True:
            try:
                return run()
            except BackfillCancelledError as cancelled:
                raise AirflowSkipException(str(cancelled)) from None
            except BackfillPausedError as paused:
                self._operator.log.info("%s", part.line(f"waiting, {paused}"))
                again = datetime.now(UTC) + timedelta(seconds=PAUSED_SECONDS)
                raise AirflowRescheduleException(again) from None  # type: ignore[no-untyped-call]
            except ChunkHeldError as held:
                left = self._wait.left
                if held.lease_expires_at is None or left <= 0:
                    self._waited(runner, part)
                    raise
                if not self._waits:
                    self._waits = True
                    self._metrics(runner, part).waiting(part.backfill_id)
                if held.holder != self._wait.holder:
                    self._wait = replace(self._wait, holder=held.holder)
                    self._operator.log.info("%s", part.line(f"waiting, {held}"))
                seconds = held.seconds_left or 0
            if self._operator.deferrable and seconds > SHORT_SECONDS:
                self._defer(part, seconds)
            time.sleep(min(left, max(0.1, min(seconds, POLL_SECONDS))))

    def _defer(self, part: Part, seconds: float) -> NoReturn:
        """Leave the worker; the lease has ``seconds`` to live."""
        from airflow_provider_backfill.triggers.chunk import ChunkTrigger

        operator = self._operator
        target = operator.hook.target
        # A destination of dlt's may hold secrets, or a configuration that the triggerer does not have.
        watched = operator.conn_id and target.destination is None and not target.dialect.single_process
        operator.defer(
            trigger=ChunkTrigger(
                backfill_id=part.backfill_id,
                chunk_id=part.chunk_id,
                seconds=seconds if watched else min(seconds, BLIND_SECONDS),
                deadline=self._wait.deadline,
                holder=self._wait.holder,
                conn_id=operator.conn_id if watched else None,
                dataset_name=(operator.into or operator.dataset_name) if watched else None,
            ),
            method_name="resume",
            # The trigger keeps to the deadline. This ends a wait that no triggerer looks after.
            timeout=timedelta(seconds=max(self._wait.left, 0) + GRACE_SECONDS),
        )

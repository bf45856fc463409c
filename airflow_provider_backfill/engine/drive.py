"""Driving a backfill without a scheduler: worker processes that claim chunks from the same ledger."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from airflow_provider_backfill._text import line
from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.choice import Again
from airflow_provider_backfill.engine.controls import Control, ControlState
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.metrics import Waiting
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus, Claim
from airflow_provider_backfill.engine.report import Tally
from airflow_provider_backfill.engine.signals import Stopped, blocked, check, held_back, stoppable, unblock
from airflow_provider_backfill.exceptions import (
    AttemptError,
    BackfillCancelledError,
    BackfillError,
    BackfillPausedError,
    ChunkHeldError,
    ClaimLostError,
)

__all__ = ["POLL_SECONDS", "Observer", "Stopped", "run", "work"]

#: How often a run looks at chunks that somebody else holds, seconds.
POLL_SECONDS = 1.0


class Observer(Protocol):
    """Told what happens during a run."""

    def running(self, claim: Claim) -> None: ...

    def completed(self, claim: Claim, records: int) -> None: ...

    def failed(self, claim: Claim, reason: str) -> None: ...

    def waiting(self, rows: list[ChunkRow], seconds_left: float) -> None:
        """Told each second; ``rows`` are held, or are pending because another backfill is at work there."""

    def paused(self, control: Control) -> None:
        """Told each second while somebody keeps the backfill from going on."""


@dataclass(frozen=True, slots=True)
class Event:
    """One call of an observer, on its way from a worker process."""

    name: str
    arguments: tuple[Any, ...]


class _Pipe:
    """An observer in a worker process: sends what it is told to the process that drives."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self._send = send

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self._send(Event(name, arguments))


def _nothing() -> None:
    """The default preparation of a worker process."""


def run(
    backfill: Backfill,
    plan: BackfillPlan,
    observer: Observer,
    *,
    concurrency: int = 1,
    prepare_worker: Callable[[], None] = _nothing,
) -> Tally:
    """Run what is due of a plan that is seeded, until the window is covered or a chunk fails.

    Chunks that somebody else holds are waited for at the end, at most ``wait_timeout_seconds``. While the
    backfill is paused, the run waits; where it is cancelled, the run ends.

    Args:
        backfill: What was asked for.
        plan: Its chunks.
        observer: Told of each step.
        concurrency: Worker processes; 1 runs in this one.
        prepare_worker: Called first in each worker process, to set up logging for example; it is pickled.

    Raises:
        Stopped: Ctrl-C, SIGTERM or SIGHUP; the chunk in flight was given back first.
    """
    since = backfill.clock()
    loaded: set[str] = set()
    deadline = time.monotonic() + backfill.settings.wait_timeout_seconds
    due = concurrency
    resting = False
    metrics = backfill.runner.metrics(plan.source_name)
    waiting = Waiting(metrics, plan.backfill_id)
    with stoppable():
        while True:
            # Most rounds of a wait find nothing to do, which is no work for processes.
            if resting:
                clean = True
            elif min(concurrency, due) <= 1:
                clean = work(backfill, plan, since, observer, loaded.add)
            else:
                clean = _work_in_processes(
                    backfill, plan, since, observer, loaded, concurrency, prepare_worker
                )
            rows = backfill.rows(plan)
            control = backfill.control(plan) if clean else None
            if control is not None and _keeps_waiting(control, rows):
                observer.paused(control)
                time.sleep(POLL_SECONDS)
                deadline += POLL_SECONDS
                due = concurrency
                resting = True
                continue
            if resting:
                resting = False
                continue
            clean = clean and control is None
            held = [row for row in rows if row.held]
            left = deadline - time.monotonic()
            # The chunk of a lease that has run out since is claimed in the next round. Where one is pending
            # still, another backfill of the source is at work on it, or has done it.
            kept = [row for row in rows if clean and row.status is ChunkStatus.PENDING]
            if kept:
                again, clean = _settle(backfill, plan, kept, observer, loaded)
                if again and clean:
                    continue
            lapsed = any(row.lapsed for row in rows)
            if not clean or not (held or kept or lapsed) or left <= 0:
                waiting.end()
                done = sum(row.status is ChunkStatus.COMPLETED for row in rows)
                metrics.progress(done, len(rows), plan.backfill_id)
                backfill.sweep(plan)
                return Tally.of(rows, loaded)
            if held or kept:
                waiting.begin()
                observer.waiting(held or kept, left)
            time.sleep(min(POLL_SECONDS, left))
            due = backfill.due(plan, since, limit=concurrency)
            if due:
                waiting.end()


def _keeps_waiting(control: Control, rows: list[ChunkRow]) -> bool:
    """The backfill is paused, and not through all the same."""
    finished = all(row.status is ChunkStatus.COMPLETED for row in rows)
    return control.state is ControlState.PAUSED and not finished


def load_again(again: Again, observer: Observer) -> Tally:
    """Load single chunks of a backfill, one by one, until all are completed or one fails.

    Those that somebody else holds are left to them.

    Args:
        again: Which they are; all that were completed have been restated.
        observer: Told of each step.

    Raises:
        Stopped: As `run`.
    """
    backfill, plan, loaded = again.backfill, again.plan, set[str]()
    with stoppable():
        for chunk_id in again.chunk_ids:
            check()
            with suppress(ChunkHeldError):
                if not _fill(backfill, plan, chunk_id, observer, loaded):
                    break
    return Tally.of([row for row in backfill.rows(plan) if row.chunk_id in again.chunk_ids], loaded)


def _settle(
    backfill: Backfill, plan: BackfillPlan, kept: list[ChunkRow], observer: Observer, loaded: set[str]
) -> tuple[bool, bool]:
    """See to pending chunks that nobody can claim since other backfills have loaded them, or some of them.

    Returns:
        Whether there were any, and whether nothing failed.

    Raises:
        OverlapError: One is loaded in part, and may not run.
    """
    found = backfill.survey(plan)
    if found.resolved.covered:
        backfill.seed(plan)
    pending = {row.chunk_id for row in kept}
    trimmed = [each.coverage.chunk.chunk_id for each in found.resolved.trimmed]
    for chunk_id in filter(pending.__contains__, trimmed):
        check()
        try:
            if not _fill(backfill, plan, chunk_id, observer, loaded):
                return True, False
        except ChunkHeldError:
            return False, True
        except (BackfillPausedError, BackfillCancelledError):
            # The next round hears of it.
            return True, True
    return bool(found.resolved.covered or pending & set(trimmed)), True


def _fill(
    backfill: Backfill, plan: BackfillPlan, chunk_id: str, observer: Observer, loaded: set[str]
) -> bool:
    """Load one chunk, or its gaps, of which the observer is told under its number; whether nothing failed."""
    from airflow_provider_backfill.engine.runner import this_claimant

    begun: list[Claim] = []

    def begin(claim: Claim) -> None:
        begun.append(replace(claim, chunk_id=chunk_id))
        observer.running(begun[-1])

    try:
        outcome = backfill.runner.run_chunk(plan.backfill_id, chunk_id, this_claimant(), on_claim=begin)
    except AttemptError as error:
        observer.failed(begun[-1], error.reason)
        return False
    if outcome.loaded:
        loaded.add(chunk_id)
        observer.completed(replace(begun[-1], interval=plan.chunks[int(chunk_id)].interval), outcome.records)
    else:
        backfill.runner.metrics(plan.source_name).skipped(plan.backfill_id, chunk_id)
    return True


def work(
    backfill: Backfill,
    plan: BackfillPlan,
    since: datetime,
    observer: Observer,
    on_loaded: Callable[[str], None],
    stopping: Callable[[], bool] = lambda: False,
) -> bool:
    """Claim and load chunks until none is left or one fails; returns whether none failed."""
    from airflow_provider_backfill.engine.runner import this_claimant

    runner, settings = backfill.runner, backfill.settings
    me = this_claimant()
    while not stopping():
        check()
        with ExitStack() as signals:
            # A signal between the claim and the attempt would leave the chunk held until its lease runs out.
            signals.enter_context(held_back())
            with backfill.target.connect(settings.file_lock_timeout_seconds) as session:
                claim = Ledger(session, backfill.target).claim_next(
                    plan, me, settings.lease_seconds, since, reload=backfill.reloads
                )
            if claim is None:
                return True
            try:
                outcome = runner.attempt(
                    claim,
                    plan.source_name,
                    ",".join(plan.resources),
                    will_retry=False,
                    on_start=_beginning(signals, observer, claim),
                )
            except ClaimLostError as error:
                # Whoever took the chunk answers for it.
                observer.failed(claim, str(error))
                continue
            except BackfillError as error:
                observer.failed(claim, error.reason if isinstance(error, AttemptError) else str(error))
                return False
        on_loaded(claim.chunk_id)
        observer.completed(claim, outcome.records)
    return True


def _beginning(signals: ExitStack, observer: Observer, claim: Claim) -> Callable[[], None]:
    def begin() -> None:
        signals.close()
        observer.running(claim)

    return begin


def _work_in_processes(
    backfill: Backfill,
    plan: BackfillPlan,
    since: datetime,
    observer: Observer,
    loaded: set[str],
    concurrency: int,
    prepare_worker: Callable[[], None],
) -> bool:
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    workers: dict[Any, BaseProcess] = {}
    clean = True
    broken: BackfillError | None = None
    # Its start unblocks signals, which the first worker's start would else bring about.
    resource_tracker.ensure_running()
    try:
        for number in range(concurrency):
            receiver, sender = context.Pipe(duplex=False)
            process: BaseProcess = context.Process(
                target=_worker,
                args=(backfill, plan, since, sender, stop, prepare_worker),
                name=f"worker-{number}",
            )
            # A worker handles signals once it has imported what it needs; until then they wait.
            with blocked():
                process.start()
                workers[receiver] = process
            sender.close()
        listening = dict(workers)
        while listening:
            for ready in wait(list(listening)):
                connection: Any = ready
                try:
                    event: Event = connection.recv()
                except (EOFError, OSError):
                    # It was killed, perhaps in the middle of an event; its exit code tells.
                    listening.pop(connection).join()
                    continue
                if event.name == "loaded":
                    loaded.add(*event.arguments)
                elif event.name == "write":
                    if backfill.sink is not None:
                        backfill.sink.write(*event.arguments)
                elif event.name == "finished":
                    clean = clean and event.arguments[0]
                    if not event.arguments[0]:
                        stop.set()
                elif event.name == "broken":
                    broken = broken or event.arguments[0]
                    stop.set()
                else:
                    getattr(observer, event.name)(*event.arguments)
    finally:
        for process in workers.values():
            if process.is_alive():
                process.terminate()
        for process in workers.values():
            process.join()
    if broken is not None:
        raise broken
    return clean and all(process.exitcode == 0 for process in workers.values())


def _worker(
    backfill: Backfill,
    plan: BackfillPlan,
    since: datetime,
    sender: Connection,
    stop: Any,
    prepare: Callable[[], None],
) -> None:
    # Ctrl-C reaches the whole process group; the process that drives passes it on as SIGTERM, once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def stopping() -> bool:
        return bool(stop.is_set()) or parent is None or not parent.is_alive()

    pipe: Any = _Pipe(sender.send)
    if backfill.sink is not None:
        # Metrics go through the process that drives: it alone has the file, and says once that it fails.
        backfill = replace(backfill, sink=pipe)
    clean = False
    try:
        with stoppable():
            unblock()
            prepare()
            clean = work(backfill, plan, since, pipe, pipe.loaded, stopping)
        pipe.finished(clean)
    except Stopped:
        raise SystemExit(1) from None
    except BackfillError as error:
        pipe.broken(error)
    except Exception as error:  # noqa: BLE001
        # Any type may fail to pickle, and its text may hold the password.
        reason = line(backfill.target.redact(str(error)))
        pipe.broken(BackfillError(f"{type(error).__name__}: {reason}"))
    finally:
        sender.close()

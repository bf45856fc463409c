"""Bringing a chunk to completion: claim it, and let an attempt load it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider_backfill.engine.attempt import Attempt
from airflow_provider_backfill.engine.causes import innermost, root_cause
from airflow_provider_backfill.engine.controls import BackfillControls
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.gaps import seed_gaps
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.loaded import LoadedTable, together
from airflow_provider_backfill.engine.metrics import Ending, Metrics, MetricsSink
from airflow_provider_backfill.engine.observers import brief, recorded
from airflow_provider_backfill.engine.overlaps import Overlap
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus, Claim, Claimant
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.signals import asked_to_stop, held_back
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.exceptions import (
    AttemptError,
    BackfillError,
    ClaimLostError,
    OverlapError,
    RefusedError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A completed chunk.

    Args:
        loaded: This attempt loaded it; False when it was completed already.
        records: Rows it holds, nested rows included.
        seconds: How long the attempt took; 0 when there was nothing to do.
        attempt: Which try it was.
        bytes: Size of the load files, bytes.
        dropped: Rows that the source gave outside the chunk, which were left out; see
            `SourceSpec.cursor_column`.
        rejected: Rows that assertions have put into ``_dlt_rejected`` instead, each with its nested ones.
        warnings: How many assertions that only warn did not hold.
        tables: The tables that this attempt's rows went to.
    """

    loaded: bool
    records: int
    seconds: float = 0.0
    attempt: int
    bytes: int = 0
    dropped: int = 0
    rejected: int = 0
    warnings: int = 0
    tables: tuple[LoadedTable, ...] = ()


def this_claimant(
    *,
    dag_id: str | None = None,
    dag_run_id: str | None = None,
    task_id: str | None = None,
    map_index: int | None = None,
) -> Claimant:
    """Who this process is, with Airflow's names for the task where there is one."""
    return Claimant(
        claimed_by=f"{socket.gethostname()}:{os.getpid()}",
        dag_id=dag_id,
        dag_run_id=dag_run_id,
        task_id=task_id,
        map_index=map_index,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """Runs attempts of one source into one target.

    Args:
        source: What to read.
        target: Where to load.
        settings: Lease, waits and directories.
        overlap: What a chunk means that other backfills have loaded in part; see `Backfill`.
        sink: Where metrics go, which must not raise; default None, which measures nothing.
    """

    source: SourceSpec
    target: Target
    settings: Settings
    overlap: str = Overlap.REFUSE
    sink: MetricsSink | None = None

    def run_chunk(
        self,
        backfill_id: str,
        chunk_id: str,
        claimant: Claimant,
        *,
        on_claim: Callable[[Claim], None] | None = None,
        will_retry: bool | None = None,
        before: Callable[[Session], None] | None = None,
        on_read: Callable[[ChunkRow], None] | None = None,
    ) -> Outcome:
        """Bring one chunk to ``completed``; one that is completed already costs a look at the ledger.

        Args:
            backfill_id: The backfill.
            chunk_id: The chunk, six digits.
            claimant: Who runs it.
            on_claim: Told of the claim before the attempt begins.
            will_retry: Whether whoever runs this will try again after a failure; recorded in the row.
            before: Called first, with the connection that the chunk is read over.
            on_read: Told of the chunk's row as it stands, next.

        Raises:
            ChunkHeldError: Somebody else holds the chunk.
            OverlapError: Another backfill of the source has completed some of it.
            ChunkMissingError: The ledger has no such chunk.
            LedgerBusyError: A database file stayed in other hands for too long.
            ClaimLostError: Somebody else took the chunk while this attempt ran; nothing was published.
            AttemptError: The attempt failed; nothing was published, and the row says why.
        """
        with ExitStack() as signals:
            with self.target.connect(self.settings.file_lock_timeout_seconds) as session:
                ledger = Ledger(session, self.target)
                if before is not None:
                    before(session)
                row = ledger.chunk(backfill_id, chunk_id)
                if on_read is not None:
                    on_read(row)
                if row.status == ChunkStatus.COMPLETED:
                    self._tell_progress(session, row.source_section, backfill_id)
                    return Outcome(loaded=False, records=row.records_loaded or 0, attempt=row.attempt or 0)
                # A signal between the claim and the attempt would leave the chunk held by nobody.
                signals.enter_context(held_back())
                gaps: list[BackfillPlan] = []
                claim = None
                try:
                    claim = ledger.claim(row, claimant, self.settings.lease_seconds, reload=self.reloads)
                except OverlapError:
                    # A version of the chunk that is to be replaced has the gaps' rows, too.
                    if self.overlap != Overlap.TRIM or row.load_ids:
                        raise
                    gaps = seed_gaps(session, self.target, row)
                else:
                    if claim is None:
                        self._tell_progress(session, row.source_section, backfill_id)
            if claim is None:
                signals.close()
                return self._fill(row, gaps, claimant, on_claim=on_claim, will_retry=will_retry)

            def begin() -> None:
                if on_claim:
                    on_claim(claim)
                signals.close()

            return self.attempt(
                claim, row.source_section, row.resource_name or "", will_retry=will_retry, on_start=begin
            )

    @property
    def reloads(self) -> bool:
        return self.overlap == Overlap.RELOAD

    def _fill(self, row: ChunkRow, gaps: Sequence[BackfillPlan], claimant: Claimant, **how: Any) -> Outcome:
        """Load what is missing of a chunk that other backfills have loaded in part; nothing if none is."""
        loaded = []
        for gap in gaps:
            # A pause of the backfill is one of its gaps, too, which are backfills of their own.
            with self.target.connect(self.settings.file_lock_timeout_seconds) as session:
                BackfillControls(session, self.target).check(row.backfill_id)
            loaded.append(self.run_chunk(gap.backfill_id, gap.chunks[0].chunk_id, claimant, **how))
        if gaps:
            # It is covered now, which the claim finds and records. Where it is not, there is no second round.
            whole = replace(self, overlap=Overlap.REFUSE)
            loaded.append(whole.run_chunk(row.backfill_id, row.chunk_id, claimant, **how))
        return Outcome(
            loaded=any(part.loaded for part in loaded),
            records=sum(part.records for part in loaded),
            seconds=sum(part.seconds for part in loaded),
            attempt=row.attempt or 0,
            bytes=sum(part.bytes for part in loaded),
            dropped=sum(part.dropped for part in loaded),
            rejected=sum(part.rejected for part in loaded),
            warnings=sum(part.warnings for part in loaded),
            tables=together(table for part in loaded for table in part.tables),
        )

    def restate(self, session: Session, backfill_id: str, chunk_ids: Sequence[str]) -> None:
        """Return chunks to ``pending`` that are completed, so that their next version replaces this one.

        Args:
            session: An open connection.
            backfill_id: The backfill.
            chunk_ids: The chunks; those that are not completed are left alone.

        Raises:
            RestateError: Their rows cannot be told from others, so nothing was changed.
        """
        from airflow_provider_backfill.engine.restate import check_restatable

        ledger = Ledger(session, self.target)
        rows = [ledger.chunk(backfill_id, chunk_id) for chunk_id in chunk_ids]
        done = [row for row in rows if row.status is ChunkStatus.COMPLETED]
        if done:
            source = self.source.load(done[0].fields)
            wait = self.settings.file_lock_timeout_seconds
            check_restatable(self.target, source, self.source, wait, whole=done[0].interval.whole)
            ledger.restate(backfill_id, *(row.chunk_id for row in done))

    def new_attempt(self, **of_chunk: Any) -> Attempt:
        """An attempt at the chunk that the arguments are about; see `Attempt`."""
        return Attempt(source=self.source, target=self.target, settings=self.settings, **of_chunk)

    def attempt(
        self,
        claim: Claim,
        source_name: str,
        resources: str = "",
        *,
        will_retry: bool | None = None,
        on_start: Callable[[], None] | None = None,
    ) -> Outcome:
        """Load a chunk that is claimed; raises as :meth:`run_chunk` does.

        ``source_name`` and ``resources`` (names with commas, empty for all) are what it was planned for.
        ``on_start`` is called once whatever it raises gives the chunk back.
        """
        began = time.monotonic()
        attempt = self.new_attempt(claim=claim, source_name=source_name, resources=resources)

        def measure(ending: Ending, outcome: Outcome | None = None) -> None:
            seconds = time.monotonic() - began
            keys = (claim.backfill_id, claim.chunk_id)
            self.metrics(source_name).ended(ending, seconds, *keys, outcome, lapsed=claim.lapsed)

        try:
            attempt.run(
                on_start, lambda session: self._tell_progress(session, source_name, claim.backfill_id)
            )
        except BaseException as error:
            # A signal that arrives meanwhile waits: it would leave the chunk held, or a stage behind.
            with held_back():
                error = (asked_to_stop() if isinstance(error, Exception) else None) or error
                hopeless = isinstance(innermost(error), RefusedError)
                published = attempt.settle(error, False if hopeless else will_retry)
                if not published:
                    measure(_ending(error, attempt))
            if not isinstance(error, Exception):
                raise error
            if not published:
                cause = innermost(error)
                if attempt.lost and not isinstance(cause, ClaimLostError | RefusedError):
                    # Whoever took the claim away dropped the stage under it, which fails in many ways.
                    raise attempt.lost from error
                # dlt wraps even KeyboardInterrupt.
                if isinstance(cause, BackfillError) or not isinstance(cause, Exception):
                    raise cause from cause.__cause__
                raise AttemptError(str(claim.number), root_cause(error, self.target.redact)) from error
        finally:
            with held_back():
                attempt.clean_up()
        outcome = Outcome(
            loaded=True,
            records=attempt.records,
            seconds=time.monotonic() - began,
            attempt=claim.attempt,
            bytes=attempt.bytes,
            dropped=attempt.dropped,
            rejected=attempt.rejected,
            warnings=attempt.warnings,
            tables=attempt.tables,
        )
        measure(Ending.COMPLETED, outcome)
        return outcome

    def metrics(self, source_name: str) -> Metrics:
        """What is measured of the source, under its name in the ledger."""
        return Metrics(sink=self.sink, target=self.target, source_name=source_name)

    def _tell_progress(self, session: Session, source_name: str, backfill_id: str) -> None:
        """How far the backfill is; the ledger is asked only if somebody listens."""
        if self.sink is None:
            return

        def tell() -> None:
            with brief(session, self.target):
                completed, total = Ledger(session, self.target).standing(backfill_id)
            self.metrics(source_name).progress(completed, total, backfill_id)

        recorded(tell, self.target, f"the progress of backfill {backfill_id} is not measured")


def _ending(error: BaseException, attempt: Attempt) -> Ending:
    if not isinstance(error, Exception):
        return Ending.STOPPED
    return Ending.LOST if attempt.lost or isinstance(innermost(error), ClaimLostError) else Ending.FAILED

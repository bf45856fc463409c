"""One attempt at one chunk: claim, extract, stage, publish, clean up."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_backfill._text import line
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.extract import extract
from airflow_provider_backfill.engine.inputs import PlanInputs
from airflow_provider_backfill.engine.lease import Heartbeat
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.publish import migrate, publish
from airflow_provider_backfill.engine.records import ChunkStatus, Claim, Claimant
from airflow_provider_backfill.engine.schemas import (
    Reality,
    SchemaMovedError,
    differences,
    read_stored_schema,
)
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.signals import Stopped, asked_to_stop, held_back
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.stage import (
    drop_leftovers,
    load_stage,
    open_client,
    stage_prefix,
    table_chains,
    working_directory,
)
from airflow_provider_backfill.exceptions import (
    AttemptError,
    BackfillError,
    ClaimLostError,
    PlanConflictError,
    RefusedError,
)

if TYPE_CHECKING:
    from dlt.destinations.job_client_impl import SqlJobClientWithStagingDataset
    from dlt.extract.source import DltSource

log = logging.getLogger(__name__)

#: How long an attempt that was told to stop waits for a database file in use, seconds: somebody is waiting.
STOP_SECONDS = 10.0

#: How often an attempt may find the tables changed under it, or be chosen by the database to give way.
TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A completed chunk.

    Args:
        loaded: This attempt loaded it; False when it was completed already.
        records: Rows it holds, nested rows included.
        seconds: How long the attempt took; 0 when there was nothing to do.
        attempt: Which try it was.
        bytes: Size of the load files, bytes.
    """

    loaded: bool
    records: int
    seconds: float = 0.0
    attempt: int
    bytes: int = 0


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
    """

    source: SourceSpec
    target: Target
    settings: Settings

    def run_chunk(
        self,
        backfill_id: str,
        chunk_id: str,
        claimant: Claimant,
        *,
        on_claim: Callable[[Claim], None] | None = None,
        will_retry: bool | None = None,
    ) -> Outcome:
        """Bring one chunk to ``completed``; one that is completed already costs a look at the ledger.

        Args:
            backfill_id: The backfill.
            chunk_id: The chunk, six digits.
            claimant: Who runs it.
            on_claim: Told of the claim before the attempt begins.
            will_retry: Whether whoever runs this will try again after a failure; recorded in the row.

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
                row = ledger.chunk(backfill_id, chunk_id)
                if row.status == ChunkStatus.COMPLETED:
                    return Outcome(loaded=False, records=row.records_loaded or 0, attempt=row.attempt or 0)
                # A signal between the claim and the attempt would leave the chunk held by nobody.
                signals.enter_context(held_back())
                claim = ledger.claim(row, claimant, self.settings.lease_seconds)

            def begin() -> None:
                if on_claim:
                    on_claim(claim)
                signals.close()

            return self.attempt(
                claim, row.source_section, row.resource_name or "", will_retry=will_retry, on_start=begin
            )

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
        attempt = _Attempt(self, claim, source_name, resources)
        try:
            attempt.run(on_start)
        except BaseException as error:
            # A signal that arrives meanwhile waits: it would leave the chunk held, or a stage behind.
            with held_back():
                error = (asked_to_stop() if isinstance(error, Exception) else None) or error
                hopeless = isinstance(innermost(error), RefusedError)
                published = attempt.settle(error, False if hopeless else will_retry)
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
        return Outcome(
            loaded=True,
            records=attempt.records,
            seconds=time.monotonic() - began,
            attempt=claim.attempt,
            bytes=attempt.bytes,
        )


class _Attempt:
    """What one attempt has and leaves behind: a stage, a directory, a claim."""

    def __init__(self, runner: Runner, claim: Claim, source_name: str, resources: str) -> None:
        stage = stage_prefix(runner.target, source_name) + claim.token
        self._runner = runner
        self._target = runner.target
        self._claim = claim
        self._source_name = source_name
        self._resources = resources
        self._stage = stage
        self._directory = working_directory(runner.target, stage, runner.settings.work_root)
        self._staged = False
        self.lost: ClaimLostError | None = None
        self._file_wait = runner.settings.file_lock_timeout_seconds
        self._opened_at: float | None = None
        self._reality = Reality()
        self.records = 0
        self.bytes = 0

    def run(self, on_start: Callable[[], None] | None) -> None:
        with Heartbeat(self._target, self._claim, self._runner.settings) as heartbeat:
            if on_start:
                on_start()
            os.makedirs(self._directory, mode=0o700)
            for number in range(1, TRIES + 1):
                try:
                    self._load(os.path.join(self._directory, str(number)), heartbeat)
                    return
                except SchemaMovedError as error:
                    if number == TRIES:
                        raise
                    log.info("chunk %s is extracted again: %s", self._claim.number, error)

    def _load(self, directory: str, heartbeat: Heartbeat) -> None:
        wait = self._file_wait
        source = self._planned_source()
        with open_client(self._target, self._stage, source.schema, wait) as (client, session):
            PlanInputs(session, self._target).check(self._claim.backfill_id, source.selected_resources)
            stored = read_stored_schema(client, source.schema.name)
            if self._staged:
                self._target.dialect.drop_schema(session, self._stage)
        known = self._reality.amend(stored or source.schema) if stored or self._reality.tables else None
        package = extract(
            source,
            self._claim.interval,
            destination=self._target.dialect.destination(self._target),
            stored_schema=known,
            directory=directory,
            check=heartbeat.check,
        )
        self.records = package.records
        self.bytes = sum(os.path.getsize(file.path) for file in package.files)
        chains = table_chains(package.schema, [file.table for file in package.files])
        recorded = package.schema
        with open_client(self._target, self._stage, package.schema, wait) as (client, session):
            self._opened_at = time.monotonic()
            if package.load_id:
                self._staged = True
                load_stage(client, package, chains)
                heartbeat.check()
                if stored is None or stored.stored_version_hash != package.schema.stored_version_hash:
                    with self._target.connect(wait) as guard:
                        recorded = migrate(client, guard, self._target, chains, stored)
                self._compare(client, session, chains)
            heartbeat.check()
            self._giving_way(
                session,
                lambda: publish(
                    client,
                    session,
                    self._target,
                    self._claim,
                    package,
                    chains,
                    recorded,
                    # The row is locked from then on; a renewal would only wait for that.
                    on_locked=heartbeat.stop,
                ),
            )
            if self._staged:
                self._target.dialect.drop_schema(session, self._stage)
                self._staged = False
            self._spare(session)

    def _planned_source(self) -> DltSource:
        """A fresh source, which must be the one that was planned for: DAGs are edited between two tasks."""
        spec = self._runner.source
        source = spec.load()
        given = {
            "source_section": (self._source_name, spec.source_name(source)),
            "resource_name": (self._resources, ",".join(sorted(set(spec.resources)))),
        }
        differences = {name: pair for name, pair in given.items() if pair[0] != pair[1]}
        if differences:
            raise PlanConflictError(self._claim.backfill_id, differences)
        return source

    def _compare(
        self, client: SqlJobClientWithStagingDataset, session: Session, chains: Mapping[str, list[str]]
    ) -> None:
        """Refuse to publish into tables that are not what the schema says."""
        merges = any(client.schema.tables[root].get("write_disposition") == "merge" for root in chains)
        found = differences(
            client, session, self._target, chains, nested=merges or bool(self._claim.superseded)
        )
        if found:
            self._reality.tables.update(found)
            names = [f"{table}.{column}" for table in found for column in found[table]["columns"]]
            raise SchemaMovedError(f"the tables are not what its schema says: {', '.join(names)}")

    def _spare(self, session: Session) -> None:
        """Let no other claim run out for the time that this attempt had the database to itself."""
        if self._target.dialect.single_process and self._opened_at is not None:
            Ledger(session, self._target).spare(time.monotonic() - self._opened_at)
            self._opened_at = None

    def _giving_way(self, session: Session, step: Callable[[], None]) -> None:
        """Repeat a transaction that the database ended in favour of another one."""
        lease = self._runner.settings.lease_seconds
        from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

        Retrying(
            retry=retry_if_exception(lambda error: self._target.dialect.is_conflict(innermost(error))),
            stop=stop_after_attempt(TRIES),
            wait=wait_random_exponential(multiplier=0.05, max=2),
            # The heart has stopped, and the next try may wait for others' publications again.
            before_sleep=lambda _: Ledger(session, self._target).renew(self._claim, lease),
            reraise=True,
        )(step)

    def settle(self, error: BaseException, will_retry: bool | None) -> bool:
        """Give the chunk back after an error; True when the rows were published all the same.

        The connection may have gone after the database committed and before it said so. The row tells.
        """
        if isinstance(error, Exception):
            reason = root_cause(error, self._target.redact)
        else:
            reason = f"stopped by {error.signal_name if isinstance(error, Stopped) else type(error).__name__}"
            self._file_wait = min(self._file_wait, STOP_SECONDS)
        try:
            with self._target.connect(self._file_wait) as session:
                ledger = Ledger(session, self._target)
                self._spare(session)
                try:
                    ledger.fail(self._claim, reason, will_retry=will_retry)
                except ClaimLostError as lost:
                    row = ledger.chunk(self._claim.backfill_id, self._claim.chunk_id)
                    if row.status is ChunkStatus.COMPLETED and row.claim_token == self._claim.token:
                        return True
                    self.lost = ClaimLostError(lost.chunk, "publish", lost.holder)
        except Exception as trouble:  # noqa: BLE001
            log.warning(
                "chunk %s could not be given back and stays claimed until its lease runs out: %s",
                self._claim.number,
                line(self._target.redact(str(trouble))),
            )
        return False

    def clean_up(self) -> None:
        """Remove the directory and the stage; what cannot be removed now, the next run removes."""
        shutil.rmtree(self._directory, ignore_errors=True)
        if not self._staged and self._claim.attempt == 1:
            return
        try:
            with self._target.connect(self._file_wait) as session:
                if self._staged:
                    self._target.dialect.drop_schema(session, self._stage)
                # The attempt before this one may have been killed.
                drop_leftovers(session, self._target, self._source_name, self._runner.settings.work_root)
        except Exception as trouble:  # noqa: BLE001
            reason = line(self._target.redact(str(trouble)))
            log.warning("stage %s is left for the next run to drop: %s", self._stage, reason)


def innermost(error: BaseException) -> BaseException:
    """The error that started it: dlt wraps what a source or a database raises several times.

    An error of this package speaks for itself, and for its own cause.
    """
    while not isinstance(error, BackfillError):
        wrapped = getattr(error, "dbapi_exception", None) or getattr(error, "exception", None)
        cause = error.__cause__ or wrapped
        if not isinstance(cause, BaseException) or cause is error:
            break
        error = cause
    return error


def root_cause(error: BaseException, redact: Callable[[str], str] = str) -> str:
    """``Type: message`` of the error that started it, on one line; secrets go before it is cut to length."""
    cause = innermost(error)
    return f"{type(cause).__name__}: {line(redact(str(cause)))}".rstrip(": ")

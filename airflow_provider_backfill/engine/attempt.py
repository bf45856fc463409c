"""One attempt at a chunk that is claimed: extract, stage, publish, clean up."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_backfill._text import line, storable
from airflow_provider_backfill.engine.assertions import Gates, Verdict, check_stage
from airflow_provider_backfill.engine.causes import innermost, root_cause
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.empty import mention, refuse_empty
from airflow_provider_backfill.engine.extract import Package, extract
from airflow_provider_backfill.engine.inputs import PlanInputs
from airflow_provider_backfill.engine.lease import Heartbeat
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.loaded import LoadedTable, loaded_tables
from airflow_provider_backfill.engine.progress import Progress
from airflow_provider_backfill.engine.publish import migrate, publish
from airflow_provider_backfill.engine.quarantine import RejectedRows
from airflow_provider_backfill.engine.records import ChunkStatus, Claim
from airflow_provider_backfill.engine.runs import RunRecord
from airflow_provider_backfill.engine.schemas import (
    Reality,
    SchemaMovedError,
    differences,
    read_stored_schema,
)
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.signals import Stopped
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.stage import (
    drop_leftovers,
    load_stage,
    open_client,
    stage_prefix,
    table_chains,
    working_directory,
)
from airflow_provider_backfill.engine.supersede import Span, cursor_columns
from airflow_provider_backfill.engine.traces import record_trace
from airflow_provider_backfill.exceptions import (
    ClaimLostError,
    PlanConflictError,
)

if TYPE_CHECKING:
    from dlt.common.schema import Schema
    from dlt.destinations.job_client_impl import SqlJobClientWithStagingDataset
    from dlt.extract.source import DltSource

log = logging.getLogger(__name__)

#: How long an attempt that was told to stop waits for a database file in use, seconds: somebody is waiting.
STOP_SECONDS = 10.0

#: How often an attempt may find the tables changed under it, or be chosen by the database to give way.
TRIES = 5


class Attempt:
    """What one attempt has and leaves behind: a stage, a directory, a claim.

    Args:
        source: What to read.
        target: Where to load.
        settings: Lease, waits and directories.
        claim: The claim that it holds.
        source_name: The source that the chunk was planned for.
        resources: Its resources that were asked for, names with commas; empty for all.

    Attributes:
        records: Rows that it publishes, nested rows included.
        bytes: Size of their load files, bytes.
        dropped: Rows that the source gave outside the chunk.
        rejected: Rows that assertions put into quarantine, nested rows not counted.
        warnings: How many assertions that only warn did not hold.
        tables: The tables that they go to.
        lost: Why it may not go on, once `settle` has found the claim gone.
    """

    def __init__(
        self,
        *,
        source: SourceSpec,
        target: Target,
        settings: Settings,
        claim: Claim,
        source_name: str,
        resources: str,
    ) -> None:
        stage = stage_prefix(target, source_name) + claim.token
        self._source = source
        self._target = target
        self._settings = settings
        self._claim = claim
        self._source_name = source_name
        self._resources = resources
        self._stage = stage
        self._directory = working_directory(target, stage, settings.work_root)
        self._staged = False
        self.lost: ClaimLostError | None = None
        self._file_wait = settings.file_lock_timeout_seconds
        self._run = RunRecord(target=target, claim=claim, source_name=source_name, resources=resources)
        self._extracted: int | None = None
        self._load_id: str | None = None
        self._opened_at: float | None = None
        self._on_completed: Callable[[Session], None] | None = None
        self._reality = Reality()
        self.records = 0
        self.dropped = 0
        self.rejected = 0
        self.warnings = 0
        self.bytes = 0
        self.tables: tuple[LoadedTable, ...] = ()

    def run(
        self,
        on_start: Callable[[], None] | None,
        on_completed: Callable[[Session], None] | None = None,
    ) -> None:
        self._on_completed = on_completed
        with Heartbeat(self._target, self._claim, self._settings) as heartbeat:
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
        progress = Progress(chunk=self._claim.number)
        source = self._planned_source()
        with open_client(self._target, self._stage, source.schema, wait) as (client, session):
            self._run.begin(session)
            PlanInputs(session, self._target).check(
                self._claim.backfill_id, source.selected_resources, whole=bool(self._claim.superseded)
            )
            stored = read_stored_schema(client, source.schema.name)
            if self._staged:
                self._target.dialect.drop_schema(session, self._stage)
        spans = self._spans(stored, source)
        gates = Gates.of(self._source, source, self._claim)
        known = self._reality.amend(stored or source.schema) if stored or self._reality.tables else None
        package = extract(
            source,
            self._claim.interval,
            destination=self._target.dialect.destination(self._target),
            plain=partial(self._target.dialect.destination, self._target, plain=True),
            stored_schema=known,
            directory=directory,
            check=heartbeat.check,
            progress=progress,
            spec=self._source,
            timezone=self._claim.timezone,
        )
        refuse_empty(self._source, self._claim, package)
        self.dropped = package.dropped
        self._extracted, self._load_id = package.extracted, package.load_id
        self.bytes = sum(os.path.getsize(file.path) for file in package.files)
        chains = table_chains(package.schema, [file.table for file in package.files])
        with open_client(self._target, self._stage, package.schema, wait) as (client, session):
            self._opened_at = time.monotonic()
            if package.load_id:
                self._staged = True
                load_stage(client, package, chains, progress)
                heartbeat.check()
            verdict = check_stage(client, self._target.dialect, gates, package, chains, heartbeat.check)
            self.records, self.rejected, self.warnings = verdict.records, verdict.rejected, verdict.warnings
            if verdict.rejected:
                RejectedRows(session, self._target).prepare()
            self._deliver(client, session, package, chains, stored, spans, verdict, heartbeat)
            mention(self._source, self._claim, package, Ledger(session, self._target))

    def _deliver(
        self,
        client: SqlJobClientWithStagingDataset,
        session: Session,
        package: Package,
        chains: Mapping[str, list[str]],
        stored: Schema | None,
        spans: Mapping[str, Span],
        verdict: Verdict,
        heartbeat: Heartbeat,
    ) -> None:
        """Migrate the tables, publish what is staged, and drop the stage."""
        recorded = package.schema
        self.tables = loaded_tables(package.schema, verdict.rows)
        if package.load_id:
            heartbeat.check()
            if stored is None or stored.stored_version_hash != package.schema.stored_version_hash:
                with self._target.connect(self._file_wait) as guard:
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
                spans,
                self._source_name,
                verdict,
                # The row is locked from then on; a renewal would only wait for that.
                on_locked=heartbeat.stop,
            ),
        )
        self._completed(session)
        if self._settings.trace:
            record_trace(session, self._target, self._claim, self._source_name, package)
        if self._staged:
            self._target.dialect.drop_schema(session, self._stage)
            self._staged = False
        self._spare(session, self._kept_seconds())

    def _completed(self, session: Session) -> None:
        self._run.end(
            session,
            ChunkStatus.COMPLETED,
            load_id=self._load_id,
            extracted=self._extracted,
            loaded=self.records,
        )
        if self._on_completed:
            self._on_completed(session)

    def _planned_source(self) -> DltSource:
        """A fresh source, which must be the one that was planned for: DAGs are edited between two tasks."""
        spec = self._source
        source = spec.load(self._claim.fields)
        given = {
            "source_section": (self._source_name, spec.source_name(source)),
            "resource_name": (self._resources, ",".join(sorted(set(spec.resources)))),
        }
        differences = {name: pair for name, pair in given.items() if pair[0] != pair[1]}
        if differences:
            raise PlanConflictError(self._claim.backfill_id, differences)
        return source

    def _spans(self, stored: Schema | None, source: DltSource) -> dict[str, Span]:
        """The rows to replace of tables that do not say which load a row came with."""
        claim = self._claim
        if not claim.superseded:
            return {}
        columns = cursor_columns(stored, source, self._source, whole=claim.interval.whole)
        return {table: column.span(claim.interval, claim.timezone) for table, column in columns.items()}

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

    def _kept_seconds(self) -> float:
        """For how long this attempt has had the database to itself, seconds; 0 where others can use it."""
        if self._opened_at is None or not self._target.dialect.single_process:
            return 0
        return time.monotonic() - self._opened_at

    def _spare(self, session: Session, seconds: float) -> None:
        """Let no other claim run out for that time; once."""
        if seconds:
            Ledger(session, self._target).spare(seconds)
        self._opened_at = None

    def _giving_way(self, session: Session, step: Callable[[], None]) -> None:
        """Repeat a transaction that the database ended in favour of another one."""
        from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

        lease = self._settings.lease_seconds
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
        # The file is closed by now; the wait for it below is not this attempt's doing.
        kept = self._kept_seconds()
        if isinstance(error, Exception):
            reason = root_cause(error, self._target.redact)
        else:
            reason = f"stopped by {error.signal_name if isinstance(error, Stopped) else type(error).__name__}"
            self._file_wait = min(self._file_wait, STOP_SECONDS)
        try:
            with self._target.connect(self._file_wait) as session:
                ledger = Ledger(session, self._target)
                self._spare(session, kept)
                try:
                    ledger.fail(self._claim, reason, will_retry=will_retry)
                except ClaimLostError as lost:
                    row = ledger.chunk(self._claim.backfill_id, self._claim.chunk_id)
                    if row.status is ChunkStatus.COMPLETED and row.claim_token == self._claim.token:
                        self._completed(session)
                        return True
                    self.lost = ClaimLostError(lost.chunk, "publish", lost.holder)
                summary = storable(self._target.redact(reason))
                self._run.end(session, ChunkStatus.FAILED, extracted=self._extracted, error=summary)
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
                drop_leftovers(session, self._target, self._source_name, self._settings.work_root)
        except Exception as trouble:  # noqa: BLE001
            reason = line(self._target.redact(str(trouble)))
            log.warning("stage %s is left for the next run to drop: %s", self._stage, reason)

"""Promotion: a window that was loaded into another dataset is moved to where it belongs, chunk by chunk.

Each chunk is claimed, staged and published as if it had been extracted; only, its rows are copied out of the
other dataset, which is left as it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.engine.assertions import Verdict
from airflow_provider_backfill.engine.attempt import Attempt
from airflow_provider_backfill.engine.backfill import Backfill, first_fields
from airflow_provider_backfill.engine.coverage import ranges
from airflow_provider_backfill.engine.destinations.base import LEDGER_TABLE, Session, Target
from airflow_provider_backfill.engine.extract import Package
from airflow_provider_backfill.engine.inputs import PlanInputs
from airflow_provider_backfill.engine.intervals import Interval, missing, stored_bound
from airflow_provider_backfill.engine.lease import Heartbeat
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.progress import Progress
from airflow_provider_backfill.engine.publish import publish_lock, speaking_for
from airflow_provider_backfill.engine.records import restored_interval
from airflow_provider_backfill.engine.runner import Runner
from airflow_provider_backfill.engine.schemas import differences, joined, read_stored_schema, unlike
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.stage import load_stage, open_client, stage_prefix, table_chains
from airflow_provider_backfill.engine.statements import Statements
from airflow_provider_backfill.engine.supersede import CursorColumn, Span, cursor_columns, rows_of_version
from airflow_provider_backfill.exceptions import PromoteError, RestateError

if TYPE_CHECKING:
    from dlt.common.schema import Schema
    from dlt.destinations.job_client_impl import SqlJobClientWithStagingDataset
    from dlt.extract.source import DltSource

_BY_ITSELF = "load the window into its own dataset with run instead of promote"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion(Backfill):
    """A backfill whose chunks come out of another dataset of the same database.

    Args:
        origin: The other dataset.
    """

    origin: Target

    def plan(self) -> BackfillPlan:
        """As `Backfill.plan`.

        Raises:
            PromoteError: The other dataset does not have all of the window, or its rows cannot be moved.
            RefusedError: As of `Backfill.plan`.
        """
        plan = Backfill.plan(self)
        if not self.origin.exists():
            raise _not_loaded(self.origin, (plan.window.interval,), plan.window.timezone)
        with self.origin.connect(self.settings.file_lock_timeout_seconds, read_only=True) as session:
            ledger = OriginLedger(session, self.origin)
            loaded = ledger.loaded(plan.source_name, plan.resources, plan.window.interval)
        gaps = missing(plan.window.interval, (chunk.interval for chunk in loaded))
        if gaps:
            raise _not_loaded(self.origin, gaps, plan.window.timezone)
        source = self.source.load(first_fields(self.source, self.window, self.chunk, self.settings))
        # Nothing is staged under this name.
        stage = f"{stage_prefix(self.target, source.name)}none"
        wait = self.settings.file_lock_timeout_seconds
        with open_client(self.target, stage, source.schema, wait) as (client, session):
            schema = _schema_of(client, session, self.origin)
        _columns_of(schema, source, self.source, self.origin, whole=plan.window.interval.whole)
        return plan

    @property
    def runner(self) -> Promoter:
        return Promoter(
            source=self.source,
            target=self.target,
            settings=self.settings,
            overlap=self.overlap,
            sink=self.sink,
            origin=self.origin,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoter(Runner):
    """Runs attempts that copy instead of extracting.

    Args:
        origin: The dataset that rows are copied from.
    """

    origin: Target

    def new_attempt(self, **of_chunk: Any) -> Attempt:
        return PromotionAttempt(
            origin=self.origin, source=self.source, target=self.target, settings=self.settings, **of_chunk
        )


class PromotionAttempt(Attempt):
    """An attempt whose stage is filled from another dataset.

    The rows keep all but ``_dlt_load_id``: to the target, their arrival is a load of its own.

    Args:
        origin: The other dataset.
    """

    def __init__(self, *, origin: Target, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._origin = origin

    def _load(self, directory: str, heartbeat: Heartbeat) -> None:
        from dlt.common.storages.load_package import create_load_id

        source = self._planned_source()
        with open_client(self._target, self._stage, source.schema, self._file_wait) as (client, session):
            PlanInputs(session, self._target).check(self._claim.backfill_id, source.selected_resources)
            self._run.begin(session)
            stored = read_stored_schema(client, source.schema.name)
            theirs = _schema_of(client, session, self._origin) or source.schema
            if self._staged:
                self._target.dialect.drop_schema(session, self._stage)
        claim = self._claim
        columns = _columns_of(theirs, source, self._source, self._origin, whole=claim.interval.whole)
        spans = {table: column.span(claim.interval, claim.timezone) for table, column in columns.items()}
        schema = self._fitted(self._reality.amend(stored or theirs), theirs)
        # Also of tables without a row in this chunk: a schema that knows a table is stored with it.
        chains = _chains(theirs, schema)
        package = Package(schema=schema, load_id=create_load_id(), files=(), row_counts={})
        with open_client(self._target, self._stage, schema, self._file_wait) as (client, session):
            self._opened_at = time.monotonic()
            self._staged = True
            load_stage(client, package, chains, Progress(chunk=claim.number))
            counts = self._copy(client, session, theirs, str(package.load_id), spans)
            package = replace(package, row_counts=counts)
            self.records = package.records
            if not package.records:
                package, chains = replace(package, load_id=None), {}
            ours = self._spans(stored, source)
            # What is promoted passed its gates when it was loaded.
            verdict = Verdict(rows=package.row_counts)
            self._deliver(client, session, package, chains, stored, ours, verdict, heartbeat)

    def _fitted(self, known: Schema, theirs: Schema) -> Schema:
        """The schema of the target's tables with what the origin's have besides."""
        for column, ours, other in unlike(known, theirs):
            raise PromoteError(
                self._origin.dataset_name,
                f"its column {column} is {other}, and {ours} in {self._target.dataset_name}",
                _BY_ITSELF,
            )
        return joined(known, theirs)

    def _copy(
        self,
        client: SqlJobClientWithStagingDataset,
        session: Session,
        theirs: Schema,
        load_id: str,
        spans: Mapping[str, Span],
    ) -> dict[str, int]:
        """Copy the chunk's rows into the stage; returns how many there are a table."""
        sql, origin = client.sql_client, self._origin
        counts: dict[str, int] = {}
        with session.transaction():
            # Nobody replaces the chunk's rows there between the look at the ledger and the copy.
            origin.dialect.lock(session, publish_lock(origin), shared=True)
            loads = self._loads(session)
            if not loads:
                return counts
            with speaking_for(client, theirs), sql.with_alternative_dataset_name(origin.dataset_name):
                chains = list(rows_of_version(client, loads, spans))
            for places, values in chains:
                for name, rows in places.items():
                    counts[name] = _copy_table(client, theirs, name, rows, values, load_id)
        return counts

    def _loads(self, session: Session) -> tuple[str, ...]:
        """The ids of the loads that brought the chunk's rows into the origin.

        Raises:
            PromoteError: They are not all there, or cannot be told from those of its neighbours.
        """
        interval, name = self._claim.interval, self._origin.dataset_name
        resources = tuple(filter(None, self._resources.split(",")))
        loaded = OriginLedger(session, self._origin).loaded(self._source_name, resources, interval)
        gaps = missing(interval, (chunk.interval for chunk in loaded))
        if gaps:
            raise _not_loaded(self._origin, gaps, self._claim.timezone)
        for chunk in loaded:
            if not interval.contains(chunk.interval):
                raise PromoteError(
                    name,
                    f"its chunk {chunk.interval} reaches beyond {interval}",
                    "pass the window and the chunk that it was loaded with",
                )
            if chunk.records and not chunk.loads:
                raise PromoteError(
                    name,
                    f"its ledger does not say which rows {chunk.interval} has",
                    "load the window again with run --into",
                )
        return tuple(load for chunk in loaded for load in chunk.loads)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedChunk:
    """A chunk that another dataset has.

    Args:
        interval: What it covers.
        loads: The ids of its loads.
        records: How many rows it had.
    """

    interval: Interval
    loads: tuple[str, ...]
    records: int


class OriginLedger(Statements):
    """The ledger of the dataset that is promoted from; see `Statements`."""

    file_name = "promote.sql"

    def loaded(self, source_name: str, resources: tuple[str, ...], interval: Interval) -> list[LoadedChunk]:
        """The completed chunks of just these resources that overlap an interval, in order."""
        if not self._has(LEDGER_TABLE, "load_ids"):
            return []
        rows = self._run(
            "loaded",
            {
                "source_section": source_name,
                "resources": ",".join(resources),
                "start": stored_bound(interval.start),
                "end": stored_bound(interval.end),
            },
        )
        return [
            LoadedChunk(
                interval=restored_interval(start, end, size),
                loads=tuple(load_ids.split(",")) if load_ids else (),
                records=int(records),
            )
            for start, end, size, load_ids, records in rows
        ]


def _copy_table(
    client: SqlJobClientWithStagingDataset,
    theirs: Schema,
    table: str,
    rows: str,
    values: Sequence[Any],
    load_id: str,
) -> int:
    """Copy rows of one table into the stage, under another load; returns how many these were."""
    sql, mark = client.sql_client, theirs.naming.normalize_identifier("_dlt_load_id")
    names = list(theirs.get_table_columns(table))
    quoted = [sql.escape_column_name(name) for name in names]
    taken = ["%s" if name == mark else column for name, column in zip(names, quoted, strict=True)]
    with client.with_staging_dataset():
        stage = client.sql_client.make_qualified_table_name(table)
    sql.execute_sql(
        f"INSERT INTO {stage} ({', '.join(quoted)}) SELECT {', '.join(taken)} FROM {rows}",
        *([load_id] if mark in names else []),
        *values,
    )
    [(count,)] = sql.execute_sql(f"SELECT count(*) FROM {stage}") or ()
    return int(count)


def _not_loaded(origin: Target, gaps: tuple[Interval, ...], timezone: str) -> PromoteError:
    return PromoteError(
        origin.dataset_name,
        f"it has not completed {ranges(gaps, timezone)} of this source with these resources",
        "load that with run --into, or pass a window that is there",
    )


def _chains(theirs: Schema, schema: Schema) -> Mapping[str, list[str]]:
    return table_chains(schema, [str(table["name"]) for table in theirs.data_tables(seen_data_only=True)])


def _schema_of(client: SqlJobClientWithStagingDataset, session: Session, origin: Target) -> Schema | None:
    """The stored schema of the source in the dataset that is promoted from; None if no row ever came.

    Raises:
        PromoteError: Its rows cannot be moved.
    """
    with client.sql_client.with_alternative_dataset_name(origin.dataset_name):
        schema = read_stored_schema(client, client.schema.name)
        if schema is None:
            return None
        chains = _chains(schema, schema)
        with speaking_for(client, schema):
            found = differences(client, session, origin, chains, nested=True)
            strangers = [
                f"{name}.{column}"
                for name, columns in client.get_storage_tables(
                    [t for chain in chains.values() for t in chain]
                )
                for column in columns
                if column not in schema.tables[name]["columns"]
            ]
    for reason, remedy in _obstacles(schema, [*found, *strangers]):
        raise PromoteError(origin.dataset_name, reason, remedy)
    return schema


def _columns_of(
    schema: Schema | None, source: DltSource, spec: SourceSpec, origin: Target, *, whole: bool
) -> dict[str, CursorColumn]:
    """What tells a chunk's rows in the tables that do not say which load a row came with."""
    try:
        return cursor_columns(schema, source, spec, whole=whole)
    except RestateError as error:
        raise PromoteError(origin.dataset_name, f"{error.subject}: {error.reason}", _BY_ITSELF) from None


def _obstacles(schema: Schema, unknown: list[str]) -> Iterator[tuple[str, str]]:
    for table in schema.data_tables(seen_data_only=True):
        for column in table["columns"].values():
            if column.get("hard_delete"):
                # A row that was deleted there is gone, and nothing is left to delete it here by.
                yield f"its table {table['name']} has rows that delete others ({column['name']})", _BY_ITSELF
    if unknown:
        yield (
            f"{', '.join(unknown)} is not as its stored schema says",
            "load the window again with run --into a new dataset",
        )

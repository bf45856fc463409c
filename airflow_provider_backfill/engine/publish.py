"""Publishing: one transaction that completes the ledger row and moves the stage into the user's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_provider_backfill.engine.assertions import Verdict
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.extract import Package
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.quarantine import RejectedRows
from airflow_provider_backfill.engine.records import Claim
from airflow_provider_backfill.engine.schemas import (
    SchemaMovedError,
    joined,
    read_stored_schema,
    stamp,
    unlike,
)
from airflow_provider_backfill.engine.stage import table_chains
from airflow_provider_backfill.engine.supersede import Span, supersede

if TYPE_CHECKING:
    from dlt.common.schema import Schema
    from dlt.destinations.job_client_impl import SqlJobClientWithStagingDataset


#: How long the tables may take to change, seconds.
MIGRATION_SECONDS = 900.0


def publish_lock(target: Target) -> str:
    """Held shared while rows are appended, and alone while tables change or keys are merged."""
    return f"publish|{target.dataset_name}"


def migrate(
    client: SqlJobClientWithStagingDataset,
    session: Session,
    target: Target,
    chains: Mapping[str, list[str]],
    stored: Schema | None,
) -> Schema:
    """Give the user's tables what this load needs, and store the schema; attempts take turns.

    Args:
        client: dlt's client, holding the attempt's schema.
        session: A second connection, which keeps the lock: dlt ends transactions on its own one.
        target: Where the tables stand.
        chains: The tables of this load.
        stored: The stored schema that the attempt was extracted on.

    Returns:
        The schema as stored now, which may hold tables and columns of other loads.

    Raises:
        SchemaMovedError: The stored schema moved on, and the files do not fit it.
    """
    ours = client.schema
    if stored is not None and stored.stored_version_hash == ours.stored_version_hash:
        return ours
    with target.dialect.exclusive(target), session.transaction():
        # dlt's statements are another connection's, and may wait for whoever reads the tables.
        target.dialect.lock(session, publish_lock(target), idle_seconds=MIGRATION_SECONDS)
        newest = read_stored_schema(client, ours.name)
        moved = newest is not None and (
            stored is None or newest.stored_version_hash != stored.stored_version_hash
        )
        schema = _evolved(newest, ours, chains) if newest is not None and moved else ours
        tables = {table for chain in chains.values() for table in chain}
        with speaking_for(client, schema):
            client.initialize_storage()
            client.update_stored_schema(only_tables=tables | set(schema.dlt_table_names()))
            stamp(client, target, schema.stored_version_hash)
        return schema


@contextmanager
def speaking_for(client: SqlJobClientWithStagingDataset, schema: Schema) -> Iterator[None]:
    """The client works on another schema meanwhile; what leaves the stage has the attempt's own columns."""
    ours, client.schema = client.schema, schema
    try:
        yield
    finally:
        client.schema = ours


def _evolved(newest: Schema, ours: Schema, chains: Mapping[str, list[str]]) -> Schema:
    """The stored schema with our tables added.

    Raises:
        SchemaMovedError: The attempt's files do not fit it.
    """
    for column, their_type, _ in unlike(newest, ours):
        raise SchemaMovedError(f"{column} is {their_type} now")
    for root, chain in table_chains(newest, [root for root in chains if root in newest.tables]).items():
        unknown = set(chain) - set(chains[root]) - set(ours.tables)
        if unknown:
            raise SchemaMovedError(f"{root} has nested tables by now that must be merged too: {unknown}")
    return joined(newest, ours)


def publish(
    client: SqlJobClientWithStagingDataset,
    session: Session,
    target: Target,
    claim: Claim,
    package: Package,
    chains: Mapping[str, list[str]],
    recorded: Schema,
    spans: Mapping[str, Span],
    source_name: str,
    verdict: Verdict,
    on_locked: Callable[[], None],
) -> None:
    """Complete the claim and publish its rows, or do neither.

    Args:
        client: dlt's client, whose staging dataset is the stage.
        session: A session on the client's connection.
        target: Where the rows go.
        claim: The claim that the attempt holds.
        package: What was extracted.
        chains: The tables of this load.
        recorded: The stored schema that ``_dlt_loads`` refers to.
        spans: The rows to replace of tables that do not say their load, by table.
        source_name: The source that the chunk was planned for.
        verdict: What the assertions have set aside.
        on_locked: Called once the wait for other publications is over and before the row is touched.

    Raises:
        ClaimLostError: The claim is somebody else's by now; nothing was published.
    """
    statements = [statement for chain in chains.values() for statement in _statements(client, target, chain)]
    merges = any(client.schema.tables[root].get("write_disposition") == "merge" for root in chains)
    with session.transaction():
        target.dialect.lock(session, publish_lock(target), shared=not merges and not claim.superseded)
        on_locked()
        # First, so that a lost claim stops here, and a rival that asks for the chunk waits for the outcome.
        ledger = Ledger(session, target)
        ledger.complete(claim, verdict.records, [package.load_id] if package.load_id else [])
        absorbed = ledger.absorb(claim) if claim.reload else []
        if claim.superseded:
            supersede(client, claim.superseded, spans)
        rejected = RejectedRows(session, target)
        if claim.attempt > 1 or absorbed or verdict.rejected:
            rejected.supersede(source_name, [claim.run_id, *absorbed])
        if verdict.rejected:
            rejected.publish(claim, source_name, client.sql_client.staging_dataset_name)
        for statement in statements:
            client.sql_client.execute_sql(statement)
        if package.load_id:
            with speaking_for(client, recorded):
                client.complete_load(package.load_id)


def _statements(client: SqlJobClientWithStagingDataset, target: Target, chain: Sequence[str]) -> list[str]:
    """dlt's own SQL for moving a table chain out of the staging dataset, which is the stage here."""
    from dlt.destinations.sql_jobs import SqlStagingCopyFollowupJob

    tables = [client.prepare_load_table(name) for name in chain]
    if tables[0]["write_disposition"] == "merge":
        statements: list[str] = target.dialect.merge_job().generate_sql(tables, client.sql_client)
        return statements
    return SqlStagingCopyFollowupJob.generate_sql(tables, client.sql_client)

"""The stage: a private dataset that one attempt loads into, and the working directory beside it."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill._text import line
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.extract import Package
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.progress import Progress

if TYPE_CHECKING:
    from dlt.common.schema import Schema
    from dlt.destinations.job_client_impl import SqlJobClientWithStagingDataset

log = logging.getLogger(__name__)


def stage_prefix(target: Target, source_name: str) -> str:
    """What the names of all stages of this source in this dataset begin with."""
    digest = hashlib.sha256(f"{target.dataset_name}|{source_name}".encode()).hexdigest()[:12]
    return f"backfill_stage_{digest}_"


def working_directory(target: Target, stage: str, work_root: str) -> str:
    """Where the attempt with this stage extracts to. Another database may have a dataset of the same name."""
    # Without the password, which a digest would let others try guesses on.
    digest = hashlib.sha256(target.redact(target.credentials).encode()).hexdigest()[:12]
    return os.path.join(work_root, f"{stage}_{digest}")


@contextmanager
def open_client(
    target: Target, stage: str, schema: Schema, wait_seconds: float
) -> Iterator[tuple[SqlJobClientWithStagingDataset, Session]]:
    """dlt's client for the target, with the stage as staging dataset, and a session on its connection."""
    from dlt.dataset.utils import get_destination_clients

    dialect = target.dialect
    with ExitStack() as stack:
        native: Any = None
        if dialect.single_process:
            native = stack.enter_context(target.connect(wait_seconds)).native
        destination = dialect.destination(target, native, staging_dataset_name_layout=stage)
        client: Any = get_destination_clients(
            schema, destination=destination, destination_dataset_name=target.dataset_name
        )[0]
        dialect.prepare_client(client)
        stack.enter_context(client)
        yield client, dialect.session_class(client.sql_client.native_connection)


def table_chains(schema: Schema, tables: Sequence[str]) -> Mapping[str, list[str]]:
    """The root tables among ``tables``, each with what must be published with it, parents first.

    A merge also needs the nested tables that got no rows, since it removes their old ones.
    """
    from dlt.common.schema.utils import get_nested_tables, get_root_table, has_table_seen_data

    present = set(tables)
    chains: dict[str, list[str]] = {}
    for name in tables:
        root = get_root_table(schema.tables, name)
        root_name = str(root["name"])
        whole = root.get("write_disposition") == "merge"
        chains[root_name] = [
            str(table["name"])
            for table in get_nested_tables(schema.tables, root_name)
            if table["name"] in present or (whole and has_table_seen_data(table))
        ]
    return chains


def load_stage(
    client: SqlJobClientWithStagingDataset,
    package: Package,
    chains: Mapping[str, list[str]],
    progress: Progress,
) -> None:
    """Create the stage and load the package's files into it."""
    assert package.load_id is not None
    progress.start("load")
    with client.with_staging_dataset():
        client.sql_client.create_dataset()
        tables = [table for chain in chains.values() for table in chain]
        statements, _ = client._build_schema_update_sql([(table, {}) for table in tables])
        client.sql_client.execute_many(statements)
        for file in package.files:
            job: Any = client.create_load_job(
                client.prepare_load_table(file.table), file.path, package.load_id
            )
            job.set_run_vars(package.load_id, client.schema, client.prepare_load_table(file.table))
            # run_managed() opens a connection a file and hides what went wrong; the open one serves.
            job._job_client = client
            job.run()
            progress.add(file.table, file.rows)
    progress.end()


def drop_leftovers(session: Session, target: Target, source_name: str, work_root: str) -> list[str]:
    """Drop stages and working directories whose claim is gone; returns their names and their paths.

    What stands is listed before the live claims are read, lest a stage begun meanwhile be taken for dead.
    """
    prefix = stage_prefix(target, source_name)
    stages = target.dialect.schemas(session, prefix)
    suffix = os.path.basename(working_directory(target, "", work_root))
    directories = [
        entry.removesuffix(suffix)
        for entry in _listdir(work_root)
        if entry.startswith(prefix) and entry.endswith(suffix)
    ]
    if not stages and not directories:
        return []
    live = {f"{prefix}{token}" for token in Ledger(session, target).live_tokens(source_name)}
    dead = [stage for stage in stages if stage not in live and _dropped(session, target, stage)]
    paths = [working_directory(target, name, work_root) for name in directories if name not in live]
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
    if dead:
        log.info("dropped %d stage(s) that interrupted attempts left behind", len(dead))
    return dead + paths


def _dropped(session: Session, target: Target, stage: str) -> bool:
    """Whether a dead stage could be dropped; another role's, for example, is left without an error."""
    try:
        target.dialect.drop_schema(session, stage)
    except Exception as trouble:  # noqa: BLE001
        log.warning("dead stage %s could not be dropped: %s", stage, line(target.redact(str(trouble))))
        return False
    return True


def _listdir(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []

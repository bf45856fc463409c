"""What a dataset says of its tables, and what they really are.

dlt keeps each version of a schema in the dataset and takes the one with the latest ``inserted_at``, which is
the clock of whichever machine wrote it. Another machine, or a pipeline that loads the same tables forward on
a schema of its own, makes the newest version forget a column or a nested table that stands all the same. A
database then casts what does not fit, without a word, and keeps nested rows whose parents are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.engine.destinations.base import Session, Target

if TYPE_CHECKING:
    from dlt.common.schema import Schema
    from dlt.common.schema.typing import TTableSchema
    from dlt.destinations.job_client_impl import SqlJobClientWithStagingDataset

#: Types that databases keep in the same columns, so that reading them back does not tell one from the other.
_ALIKE = (frozenset({"json", "text"}), frozenset({"decimal", "wei"}))


class SchemaMovedError(Exception):
    """The tables are not what this attempt's files were written for; extract again on what they are."""


@dataclass(slots=True)
class Reality:
    """What an attempt has found its tables to be, beyond what the stored schema says.

    Args:
        tables: Partial tables, as dlt's schema has them.
    """

    tables: dict[str, TTableSchema] = field(default_factory=dict)

    def amend(self, schema: Schema) -> Schema:
        """A schema that knows them; the same one if there is nothing to add."""
        if not self.tables:
            return schema
        amended = schema.clone()
        for name, table in self.tables.items():
            known: Any = amended.tables.get(name)
            if known is None:
                amended.update_table(table)
            else:
                # A type that differs is what dlt would refuse to update.
                known["columns"] = {**known["columns"], **table["columns"]}
        return amended


def read_stored_schema(client: SqlJobClientWithStagingDataset, name: str) -> Schema | None:
    """The newest schema of this name that the dataset has stored."""
    info = client.get_stored_schema(name)
    return _parsed(info.schema) if info else None


def _parsed(text: str) -> Schema:
    from dlt.common.json import json
    from dlt.common.schema import Schema

    return Schema.from_stored_schema(json.loads(text))


def unlike(known: Schema, other: Schema) -> Iterator[tuple[str, str, str]]:
    """Columns that both schemas have with different types: ``table.column``, the known type, the other."""
    for name, table in other.tables.items():
        columns = known.tables.get(name, {}).get("columns", {})
        for column_name, column in table.get("columns", {}).items():
            known_type, other_type = columns.get(column_name, {}).get("data_type"), column.get("data_type")
            if known_type and other_type and other_type != known_type:
                yield f"{name}.{column_name}", known_type, other_type


def joined(known: Schema, other: Schema) -> Schema:
    """A schema with the tables and columns of another added."""
    schema = known.clone()
    schema.update_schema(other)
    schema._bump_version()
    return schema


def stamp(client: SqlJobClientWithStagingDataset, target: Target, version_hash: str) -> None:
    """Make a version that was just stored the newest, whatever the clocks of machines say."""
    sql, schema = client.sql_client, client.schema
    versions = sql.make_qualified_table_name(schema.version_table_name)
    inserted_at, hashed = (
        sql.escape_column_name(schema.naming.normalize_identifier(name))
        for name in ("inserted_at", "version_hash")
    )
    now = target.dialect.fragments["now"]
    sql.execute_sql(
        f"UPDATE {versions} SET {inserted_at} = greatest({now}, (SELECT max({inserted_at}) FROM {versions}"
        f" WHERE {hashed} <> %s) + INTERVAL '1 microsecond') WHERE {hashed} = %s",
        version_hash,
        version_hash,
    )


def differences(
    client: SqlJobClientWithStagingDataset,
    session: Session,
    target: Target,
    chains: Mapping[str, list[str]],
    nested: bool,
) -> dict[str, TTableSchema]:
    """Where the tables of a load are not what the client's schema says, as they are.

    Args:
        client: dlt's client, holding the attempt's schema; the tables have all columns that this load needs.
        session: A session on the client's connection.
        target: Where the tables stand.
        chains: The tables of the load, by their roots.
        nested: Look for nested tables that the schema does not know, too: old rows of them are to go.
    """
    found: dict[str, Any] = dict(
        _other_types(client, [table for chain in chains.values() for table in chain])
    )
    if nested:
        found.update(_unknown_nested(client, session, target, chains))
    return found


def _other_types(
    client: SqlJobClientWithStagingDataset, tables: list[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, real in client.get_storage_tables(tables):
        declared = client.schema.tables[name]["columns"]
        others = {
            column: {**declared[column], **_type_of(real[column])}
            for column in declared.keys() & real.keys()
            if not _fits(declared[column].get("data_type"), real[column].get("data_type"))
        }
        if others:
            yield name, {"name": name, "columns": others}


def _type_of(column: Mapping[str, Any]) -> dict[str, Any]:
    names = ("data_type", "precision", "scale", "timezone")
    return {name: column[name] for name in names if column.get(name) is not None}


def _fits(declared: str | None, real: str | None) -> bool:
    return not declared or not real or declared == real or frozenset({declared, real}) in _ALIKE


def _unknown_nested(
    client: SqlJobClientWithStagingDataset, session: Session, target: Target, chains: Mapping[str, list[str]]
) -> Iterator[tuple[str, TTableSchema]]:
    unknown = {
        name
        for root in chains
        for name in target.dialect.tables(session, target.dataset_name, f"{root}__")
        if name not in client.schema.tables
    }
    if not unknown:
        return
    sql, schema = client.sql_client, client.schema
    text, named = (
        sql.escape_column_name(schema.naming.normalize_identifier(name)) for name in ("schema", "schema_name")
    )
    versions = sql.make_qualified_table_name(schema.version_table_name)
    rows = sql.execute_sql(f"SELECT {text} FROM {versions} WHERE {named} = %s", schema.name)
    for (stored,) in rows or ():
        tables = _parsed(str(stored)).tables
        # What no version of this source has ever had is somebody else's.
        for name in sorted(unknown & tables.keys()):
            unknown.discard(name)
            yield name, tables[name]

"""Quarantine: rows that do not pass leave the stage, and reach ``_dlt_rejected`` with the publication."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.engine import gates
from airflow_provider_backfill.engine.nested import column, delete_families, families
from airflow_provider_backfill.engine.records import Claim
from airflow_provider_backfill.engine.statements import REJECTED_TABLE, Statements

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.assertions.failing import StagedTable

#: Tables that an attempt keeps in its stage; dlt names none of its own so.
STAGED_TABLE = "_dlt_backfill_rejected"
_FAILING_TABLE = "_dlt_backfill_failing"
#: How many values one statement inserts.
_BATCH = 1_000


class RejectedRows(Statements):
    """The table ``_dlt_rejected`` beside the ledger: rows that were not published, with their nested ones."""

    file_name = "rejected.sql"

    def prepare(self) -> None:
        """Create the table, if it is not there; several attempts may do so at once."""
        if not self._has(REJECTED_TABLE):
            with self._locked("rejected"):
                self.create()

    def supersede(self, source_name: str, run_ids: Iterable[str]) -> None:
        """Delete what earlier versions of chunks have left there."""
        if self._has(REJECTED_TABLE):
            for run_id in run_ids:
                self._run("supersede", {"run_id": run_id, "source_section": source_name})

    def publish(self, claim: Claim, source_name: str, stage: str) -> None:
        """Take over what stands in the stage; call it in the transaction that publishes the others.

        Args:
            claim: The claim that the attempt holds.
            source_name: The source that the chunk was planned for.
            stage: The stage's name.
        """
        quote = self._target.dialect.quote
        staged = f"{quote(stage)}.{quote(STAGED_TABLE)}"
        self._run("publish", {"run_id": claim.run_id, "source_section": source_name}, staged=staged)


def set_aside(
    table: StagedTable, chain: Sequence[str], resource: str, assertion: gates.Assertion, failing: str
) -> int:
    """Move the rows of a staged table that do not pass, with what is nested in them; returns how many.

    Args:
        table: A root table. The stage is the client's active dataset.
        chain: It and its nested tables that are staged, parents first.
        resource: Whose table it is.
        assertion: What they do not pass.
        failing: A query for their ids and violations.
    """
    sql = table.client.sql_client
    found = sql.make_qualified_table_name(_FAILING_TABLE)
    sql.execute_sql(f"CREATE TABLE {found} AS {failing}")
    count = _count(table, found)
    if count:
        condition = f"{table.row_id} IN (SELECT row_id FROM {found})"
        _copy(table, chain, resource, assertion, found, condition)
        delete_families(table.client, chain, condition)
    sql.execute_sql(f"DROP TABLE {found}")
    return count


def query_of(table: StagedTable, identities: Sequence[str], violation: str) -> str:
    """A query for rows that were found one by one: their ids, in SQL, and the violation of all."""
    kind = table.dialect.row_id[1]
    text = table.literal(violation)
    batches = (identities[at : at + _BATCH] for at in range(0, len(identities), _BATCH))
    return " UNION ALL ".join(
        f"SELECT CAST(identity AS {kind}) AS row_id, {text} AS violation"
        f" FROM (VALUES {', '.join(f'({identity})' for identity in batch)}) AS listed (identity)"
        for batch in batches
    )


def _count(table: StagedTable, relation: str) -> int:
    rows: Any = table.client.sql_client.execute_sql(f"SELECT count(*) FROM {relation}")
    return int(rows[0][0])


def _copy(
    table: StagedTable,
    chain: Sequence[str],
    resource: str,
    assertion: gates.Assertion,
    found: str,
    condition: str,
) -> None:
    """Write the rows into the stage's own table of rejected ones, as JSON."""
    sql = table.client.sql_client
    rejected = sql.make_qualified_table_name(STAGED_TABLE)
    names = ("resource_name", "assertion_type", "assertion_params", "violation", "row_json")
    sql.execute_sql(f"CREATE TABLE IF NOT EXISTS {rejected} ({', '.join(f'{name} TEXT' for name in names)})")
    row, joins = _row(table, chain, table.name, families(table.client, chain, condition))
    parameters = json.dumps({assertion.name: assertion.value})
    constants = ", ".join(map(table.literal, (resource, assertion.name, parameters)))
    alias = _alias(chain, table.name)
    sql.execute_sql(
        f"INSERT INTO {rejected} ({', '.join(names)})"
        f" SELECT {constants}, failing.violation, CAST({row} AS TEXT) FROM {found} AS failing"
        f" JOIN {table.qualified} AS {alias} ON {alias}.{table.row_id} = failing.row_id{joins}"
    )


def _row(table: StagedTable, chain: Sequence[str], name: str, doomed: Mapping[str, str]) -> tuple[str, str]:
    """A row of a table as JSON, its nested rows by the names of their tables, and the joins for them."""
    client, alias = table.client, _alias(chain, name)
    row_id, parent_id, position = (
        column(client, own) for own in ("_dlt_id", "_dlt_parent_id", "_dlt_list_idx")
    )
    nested: dict[str, str] = {}
    joins = ""
    for child in chain:
        if client.schema.tables[child].get("parent") != name:
            continue
        inner = _alias(chain, child)
        below, more = _row(table, chain, child, doomed)
        rows, _, condition = doomed[child].partition(" WHERE ")
        listed = table.dialect.list_as_json(below, f"{inner}.{position}")
        joins += (
            f" LEFT JOIN (SELECT {inner}.{parent_id} AS parent_id, {listed} AS listed"
            f" FROM (SELECT * FROM {rows} WHERE {condition}) AS {inner}{more}"
            f" GROUP BY {inner}.{parent_id}) AS of_{inner} ON of_{inner}.parent_id = {alias}.{row_id}"
        )
        nested[table.literal(child)] = f"of_{inner}.listed"
    hints = client.schema.get_table_columns(name)
    columns = {
        client.sql_client.escape_column_name(column_name): str(hint["data_type"])
        for column_name, hint in hints.items()
    }
    return table.dialect.row_as_json(alias, columns, nested), joins


def _alias(chain: Sequence[str], name: str) -> str:
    return f"_staged_{chain.index(name)}"

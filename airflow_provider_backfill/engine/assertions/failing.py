"""Which rows of a staged table do not pass an assertion, as SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.engine import gates
from airflow_provider_backfill.engine.destinations.base import Dialect
from airflow_provider_backfill.engine.supersede import Span
from airflow_provider_backfill.exceptions import GateError

if TYPE_CHECKING:
    from dlt.destinations.job_client_impl import SqlJobClientWithStagingDataset

#: How many rows a Python predicate's caller reads at a time.
PAGE = 5_000
#: How much of a value a violation quotes, characters.
_QUOTED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedTable:
    """A root table of the stage, which must be the client's active dataset.

    Args:
        client: dlt's client.
        dialect: The database's dialect.
        name: The table, as dlt calls it.
    """

    client: SqlJobClientWithStagingDataset
    dialect: Dialect
    name: str

    @property
    def qualified(self) -> str:
        return str(self.client.sql_client.make_qualified_table_name(self.name))

    @property
    def row_id(self) -> str:
        return self.dialect.row_id[0]

    def count(self) -> int:
        rows: Any = self.client.sql_client.execute_sql(f"SELECT count(*) FROM {self.qualified}")
        return int(rows[0][0])

    def literal(self, value: Any) -> str:
        """A value in SQL."""
        return str(self.client.capabilities.escape_literal(value))

    def failing_count(self, assertion: gates.Assertion, span: Span | None) -> int:
        """How many rows do not pass; see `failing`."""
        query = self.failing(assertion, span)
        rows: Any = self.client.sql_client.execute_sql(f"SELECT count(*) FROM ({query}) AS failing")
        return int(rows[0][0])

    def failing(self, assertion: gates.Assertion, span: Span | None) -> str:
        """A query for the rows that do not pass: ``row_id``, and what is wrong with each, ``violation``.

        Raises:
            GateError: There is no such column, or its values are of another type.
        """
        match assertion:
            case gates.UniqueColumns(columns=names):
                return self._doubles(names)
            case gates.NotNullColumns(columns=names):
                return self._nulls(names)
            case gates.AcceptedValues(column=name, values=values):
                column, hint = self._column(name, assertion)
                accepted = ", ".join(self._typed(value, hint, assertion) for value in values)
                return self._query(f"{column} NOT IN ({accepted})", self._quote(column, name))
            case gates.CursorWithinChunk() if span is not None:
                column, hint = self._column(span.column, assertion)
                start, end = (self._typed(bound, hint, assertion) for bound in (span.start, span.end))
                inside = f"{column} >= {start} AND {column} < {end}"
                return self._query(f"NOT coalesce({inside}, FALSE)", self._quote(column, span.column))
            case gates.SqlPredicate(sql=predicate):
                # A comment at its end must not hide what stands behind it.
                return self._query(f"NOT ({predicate}\n)", self.literal(f"not {predicate}"))
        raise TypeError(type(assertion).__name__)

    def _query(self, condition: str, violation: str) -> str:
        selected = f"{self.row_id} AS row_id, {violation} AS violation"
        return f"SELECT {selected} FROM {self.qualified} WHERE {condition}"

    def _quote(self, column: str, name: str) -> str:
        value = f"coalesce(substr(CAST({column} AS TEXT), 1, {_QUOTED}), 'null')"
        return f"{self.literal(f'{name} is ')} || {value}"

    def _doubles(self, names: tuple[str, ...]) -> str:
        columns = [self._column(name, gates.UniqueColumns(columns=names))[0] for name in names]
        listed, present = ", ".join(columns), " AND ".join(f"{column} IS NOT NULL" for column in columns)
        quoted = " || ', ' || ".join(
            self._quote(column, name) for column, name in zip(columns, names, strict=True)
        )
        numbered = f"row_number() OVER (PARTITION BY {listed} ORDER BY {self.row_id})"
        return (
            f"SELECT row_id, violation FROM (SELECT {self.row_id} AS row_id, {numbered} AS nth,"
            f" 'a row before it is the same: ' || {quoted} AS violation"
            f" FROM {self.qualified} WHERE {present}) AS numbered WHERE nth > 1"
        )

    def _nulls(self, names: tuple[str, ...]) -> str:
        columns = [self._column(name, gates.NotNullColumns(columns=names))[0] for name in names]
        absent = [
            f"CASE WHEN {column} IS NULL THEN {self.literal(name)} END"
            for column, name in zip(columns, names, strict=True)
        ]
        condition = " OR ".join(f"{column} IS NULL" for column in columns)
        return self._query(condition, f"concat_ws(', ', {', '.join(absent)}) || ' is null'")

    def _column(self, name: str, assertion: gates.Assertion) -> tuple[str, Mapping[str, Any]]:
        """A column by the name that somebody gave it, quoted, and its hint."""
        naming, columns = self.client.schema.naming, self.client.schema.tables[self.name]["columns"]
        nested = naming.make_path(*map(naming.normalize_identifier, name.split(".")))
        for spelling in (name, naming.normalize_path(name), nested):
            if spelling in columns:
                hint: Any = columns[spelling]
                # Declared without a type, and without a value in any row: the table does not have it.
                if not hint.get("data_type"):
                    return "CAST(NULL AS TEXT)", hint
                return self.client.sql_client.escape_column_name(spelling), hint
        known = ", ".join(column for column in columns if not column.startswith("_dlt"))
        reason = f"names column {name!r}, which table {self.name} does not have"
        remedy = (
            f"its columns are: {known}; one that has had no value in any row yet needs a type in the source, "
            f"e.g. columns={{{name!r}: {{'data_type': 'text'}}}}"
        )
        raise GateError({assertion.name: assertion.value}, reason, remedy)

    def _typed(self, value: Any, hint: Mapping[str, Any], assertion: gates.Assertion) -> str:
        """A value in SQL as the column has it, which is as dlt would load it."""
        from dlt.common.data_types import coerce_value, py_type_to_sc_type

        kind = hint.get("data_type")
        if kind is None:
            return self.literal(str(value))
        try:
            coerced = coerce_value(kind, py_type_to_sc_type(type(value)), value)
        except (ValueError, TypeError):
            reason = f"has {value!r}, and column {hint['name']} of table {self.name} is of type {kind}"
            raise GateError({assertion.name: assertion.value}, reason, "pass values of that type") from None
        if isinstance(coerced, datetime) and coerced.tzinfo and hint.get("timezone") is False:
            coerced = coerced.astimezone(UTC).replace(tzinfo=None)
        return self.literal(coerced)

    def rejected_by(
        self, function: Callable[[Mapping[str, Any]], object], check: Callable[[], None]
    ) -> list[str]:
        """Ids, in SQL, of the rows for which a Python predicate is not true.

        Args:
            function: Gets each row as a dict by column.
            check: Called for every page of rows; raises to stop.
        """
        found: list[str] = []
        statement = f"SELECT {self.row_id}, staged.* FROM {self.qualified} AS staged"
        with self.client.sql_client.execute_query(statement) as cursor:
            names = [column[0] for column in cursor.description][1:]
            for page in _pages(cursor):
                check()
                found += [
                    self.literal(identity)
                    for identity, *values in page
                    if not function(dict(zip(names, values, strict=True)))
                ]
        return found


def _pages(cursor: Any) -> Iterator[list[Any]]:
    while page := cursor.fetchmany(PAGE):
        yield page

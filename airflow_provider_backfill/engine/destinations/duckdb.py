"""DuckDB: one file, which one process at a time may have open for writing."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

from airflow_provider_backfill._text import shown
from airflow_provider_backfill.engine.destinations.base import IDLE_SECONDS, Dialect, Session, Target
from airflow_provider_backfill.engine.destinations.features import Feature, unsupported
from airflow_provider_backfill.exceptions import LedgerBusyError, LedgerUnreachableError, TargetError

#: Paths that DuckDB and dlt give a meaning of their own.
_NO_FILE = {"": "it names no file", ":memory:": "it keeps nothing once the process ends"}
_HOLDER = re.compile(r"Conflicting lock is held in (?P<program>.+?) \(PID (?P<pid>\d+)\)")


class DuckdbSession(Session):
    """A DuckDB connection; it commits each statement by itself outside :meth:`transaction`."""

    mark = "${}"

    def _execute(self, text: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        cursor = self.native.execute(text, dict(parameters))
        return list(cursor.fetchall()) if cursor.description else []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.native.begin()
        try:
            yield
        except BaseException:
            import duckdb

            # DuckDB has rolled back by itself after some errors, and says so with this one.
            with suppress(duckdb.TransactionException):
                self.native.rollback()
            raise
        self.native.commit()


def _database_of(path: str) -> str:
    """DuckDB names a database after its file."""
    return os.path.basename(path).split(".")[0]


def _meet(left: str, right: str) -> str:
    return (
        f"({left} IS NULL OR {right} IS NULL"
        f" OR list_has_any(string_split({left}, ','), string_split({right}, ',')))"
    )


class Duckdb(Dialect):
    """DuckDB files. Processes take turns at the file; threads of one process share it."""

    name = "duckdb"
    schemes = ("duckdb",)
    session_class = DuckdbSession
    # dlt's own choice, INSERT statements, takes 10 s for 86,400 rows where parquet takes 0.4 s.
    loader_file_format = "parquet"
    single_process = True
    row_id = ("rowid", "BIGINT")
    fragments: ClassVar[Mapping[str, str]] = {
        "now": "now()",
        "resources_meet": _meet("other.resource_name", "CAST(:resource_name AS TEXT)"),
        "resources_meet_mine": _meet("other.resource_name", "mine.resource_name"),
        "planned_chunks": (
            '(SELECT unnest(from_json(CAST(:chunks AS JSON), \'[{"chunk_id": "VARCHAR",'
            ' "chunk_from": "TIMESTAMPTZ", "chunk_to": "TIMESTAMPTZ", "run_id": "VARCHAR"}]\'),'
            " recursive := true))"
        ),
        "covered_chunks": (
            "(SELECT unnest(from_json(CAST(:chunks AS JSON),"
            ' \'[{"id": "VARCHAR", "backfills": "VARCHAR"}]\'), recursive := true))'
        ),
    }
    _claiming = threading.RLock()

    def check(self, target: Target) -> None:
        if target.credentials in _NO_FILE:
            name = f"duckdb {target.credentials}".strip()
            raise unsupported(name, Feature.SHARED, because=_NO_FILE[target.credentials])
        # DuckDB reads a.b as table b of database a where there is one.
        catalog = _database_of(target.credentials)
        if catalog.lower() == target.dataset_name.lower():
            raise TargetError(
                f"dataset_name {shown(target.dataset_name)} is the name of the DuckDB file too, "
                "and DuckDB would take one for the other; rename the file or the dataset"
            )

    def address(self, credentials: str) -> tuple[str, str]:
        return f"duckdb://{credentials}", _database_of(credentials)

    def read_url(self, url: str) -> str:
        """``duckdb:///relative.duckdb`` and ``duckdb:////absolute.duckdb``, as SQLAlchemy spells them."""
        return absolute(url.split("://", 1)[1].split("?", 1)[0].removeprefix("/"))

    def read_config(self, config: Any) -> str:
        path = str(config.credentials.database)
        if path == ":external:":
            raise unsupported("duckdb", Feature.SHARED, because="it was given an open connection")
        return path

    @contextmanager
    def connect(self, target: Target, wait_seconds: float, *, read_only: bool = False) -> Iterator[Session]:
        native = _open(target.credentials, wait_seconds, read_only)
        try:
            yield DuckdbSession(native)
        finally:
            native.close()

    def exists(self, target: Target) -> bool:
        return os.path.exists(target.credentials)

    @contextmanager
    def exclusive(self, target: Target) -> Iterator[None]:
        # Within a process DuckDB lets two transactions each see none of the other's claim.
        with self._claiming:
            yield

    def lock(
        self, session: Session, key: str, *, shared: bool = False, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        """The file is this process's alone, and :meth:`exclusive` keeps its threads apart."""

    def schemas(self, session: Session, prefix: str) -> list[str]:
        rows = session.execute(
            "SELECT schema_name FROM duckdb_schemas()"
            " WHERE database_name = current_database() AND starts_with(schema_name, :prefix)"
            " ORDER BY schema_name",
            {"prefix": prefix},
        )
        return [str(name) for (name,) in rows]

    def table_columns(self, session: Session, schema: str, table: str) -> list[str]:
        rows = session.execute(
            "SELECT column_name FROM duckdb_columns()"
            " WHERE database_name = current_database() AND schema_name = :schema AND table_name = :table"
            " ORDER BY column_index",
            {"schema": schema, "table": table},
        )
        return [str(name) for (name,) in rows]

    def row_as_json(self, alias: str, columns: Mapping[str, str], nested: Mapping[str, str]) -> str:
        members = [f"{name} := {_as_json(f'{alias}.{name}', kind)}" for name, kind in columns.items()]
        row = f"to_json(struct_pack({', '.join(members)}))"
        pairs = ", ".join(f"{key}, coalesce({value}, CAST('[]' AS JSON))" for key, value in nested.items())
        return f"json_merge_patch({row}, json_object({pairs}))" if nested else row

    def list_as_json(self, rows: str, order: str) -> str:
        return f"to_json(list({rows} ORDER BY {order}))"

    def build_destination(self, credentials: str) -> Any:
        import dlt

        return dlt.destinations.duckdb(credentials=credentials)

    def is_conflict(self, error: BaseException) -> bool:
        import duckdb

        return isinstance(error, duckdb.TransactionException)


def absolute(path: str) -> str:
    """The path from the root on, unless it names no file."""
    return path if path in _NO_FILE else os.path.abspath(path)


def _as_json(column: str, kind: str) -> str:
    """What DuckDB can write as JSON without a loss."""
    text = f"CAST({column} AS VARCHAR)"
    if kind in {"decimal", "wei"}:
        return text
    if kind == "double":
        # JSON has neither NaN nor infinity.
        return f"CASE WHEN isfinite({column}) THEN to_json({column}) ELSE to_json({text}) END"
    return column


def _open(path: str, wait_seconds: float, read_only: bool) -> Any:
    import duckdb
    from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

    attempts = Retrying(
        retry=retry_if_exception(_is_lock),
        stop=stop_after_delay(wait_seconds),
        # Random, so that processes that wait for one file do not keep step.
        wait=wait_random(0.01, 0.1),
        reraise=True,
    )
    try:
        return attempts(duckdb.connect, path, read_only=read_only)
    except duckdb.IOException as error:
        if _is_lock(error):
            held = _HOLDER.search(str(error))
            if held is None:
                raise LedgerBusyError(path, wait_seconds) from None
            holder = f"{os.path.basename(held['program'])} (process {held['pid']}) has it open"
            raise LedgerBusyError(path, wait_seconds, holder) from None
        raise LedgerUnreachableError(path, " ".join(str(error).split())) from None


def _is_lock(error: BaseException) -> bool:
    return "Could not set lock on file" in str(error)

"""PostgreSQL."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any, ClassVar
from urllib.parse import unquote

from airflow_provider_backfill.engine.destinations.base import IDLE_SECONDS, Dialect, Session, Target
from airflow_provider_backfill.engine.destinations.copying import copy_parquet
from airflow_provider_backfill.engine.destinations.libpq import libpq_uri, uri_credentials
from airflow_provider_backfill.exceptions import LedgerUnreachableError


class PostgresSession(Session):
    """A psycopg2 connection in autocommit mode."""

    mark = "%({})s"

    def _execute(self, text: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        if self.patience is not None:
            # In one message with the statement, so that it ends with its transaction, also in autocommit.
            text = f"SET LOCAL statement_timeout = {math.ceil(self.patience * 1_000)}; {text}"
        with self.native.cursor() as cursor:
            cursor.execute(text, parameters)
            return list(cursor.fetchall()) if cursor.description else []

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.native.autocommit = False
        # Whatever the database's default: a snapshot from before a wait for a lock misses what was done then.
        self.native.isolation_level = "READ COMMITTED"
        try:
            yield
            self.native.commit()
        except BaseException:
            if not self.native.closed:
                self.native.rollback()
            raise
        finally:
            if not self.native.closed:
                _commit_each(self.native)


def _meet(left: str, right: str) -> str:
    return (
        f"({left} IS NULL OR {right} IS NULL"
        f" OR string_to_array({left}, ',') && string_to_array({right}, ','))"
    )


class Postgres(Dialect):
    """PostgreSQL 12 and later, also behind a pooler that gives each transaction another connection.

    Every lock and temporary table ends with its transaction, and no statement changes a session.
    """

    name = "postgres"
    schemes = ("postgresql", "postgres")
    session_class = PostgresSession
    # dlt's own choice, INSERT statements, costs half as much again to write, and the server more to read.
    loader_file_format = "parquet"
    row_id = ("ctid", "tid")
    fragments: ClassVar[Mapping[str, str]] = {
        # now() stands still from the begin of a transaction, which may have waited for a lock since.
        "now": "clock_timestamp()",
        "resources_meet": _meet("other.resource_name", "CAST(:resource_name AS text)"),
        "resources_meet_mine": _meet("other.resource_name", "mine.resource_name"),
        "planned_chunks": (
            "(SELECT * FROM json_to_recordset(CAST(:chunks AS json))"
            " AS chunk(chunk_id text, chunk_from timestamptz, chunk_to timestamptz, run_id text))"
        ),
        "covered_chunks": (
            "(SELECT * FROM json_to_recordset(CAST(:chunks AS json)) AS chunk(id text, backfills text))"
        ),
    }

    @contextmanager
    def connect(self, target: Target, wait_seconds: float, *, read_only: bool = False) -> Iterator[Session]:
        import psycopg2

        try:
            native = _open(target.credentials, connect_timeout=math.ceil(wait_seconds))
        except psycopg2.Error as error:
            raise LedgerUnreachableError("postgres", target.redact(_one_line(error))) from None
        if read_only:
            # BEGIN READ ONLY: a setting of the session would outlive it in a pooler's connection.
            native.set_session(readonly=True)
        else:
            native.autocommit = True
        try:
            yield PostgresSession(native)
        finally:
            # A pooler throws away a connection that is left in a transaction.
            if read_only and not native.closed:
                with suppress(psycopg2.Error):
                    native.rollback()
            native.close()

    def passwords(self, credentials: str) -> Sequence[str]:
        import psycopg2
        from psycopg2.extensions import parse_dsn

        try:
            found = parse_dsn(credentials).get("password")
        except psycopg2.Error:
            # libpq will refuse it too, and quote it as it does so.
            found = credentials.partition("://")[2].rpartition("@")[0].partition(":")[2]
        return (str(found),) if found else ()

    def read_config(self, config: Any) -> str:
        login = config.credentials
        return libpq_uri(
            user=login.username,
            password=login.password,
            host=login.host,
            port=login.port,
            # SQLAlchemy 1.4 leaves a database's name as the URL spells it.
            database=unquote(login.database or ""),
            options=login.get_query(),
        )

    def address(self, credentials: str) -> tuple[str, str]:
        from psycopg2.extensions import parse_dsn

        found = parse_dsn(credentials)
        # Of several servers the first; a directory is that of a local server's socket.
        host = (found.get("host") or "localhost").split(",")[0]
        host = "localhost" if host.startswith("/") else f"[{host}]" if ":" in host else host
        port = str(found.get("port") or 5432).split(",")[0]
        return f"{self.name}://{host}:{port}", str(found.get("dbname") or found.get("user") or "")

    def lock(
        self, session: Session, key: str, *, shared: bool = False, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big", signed=True)
        function = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        # By itself a server notices a lost machine after two hours, and keeps its locks until then.
        session.execute(
            f"SELECT set_config('idle_in_transaction_session_timeout', :idle, true), {function}(:number)",
            {"idle": f"{math.ceil(idle_seconds * 1_000)}ms", "number": number},
        )

    def drop_schema(self, session: Session, schema: str) -> None:
        # Whoever reads a dead stage, such as a dump, must not keep the living from their work.
        with session.transaction():
            session.execute("SET LOCAL lock_timeout = '5s'")
            super().drop_schema(session, schema)

    def limit_statements(self, session: Session, seconds: float) -> None:
        # A number of ours, and SET takes no parameters.
        session.execute(f"SET LOCAL statement_timeout = {math.ceil(seconds * 1_000)}")

    def schemas(self, session: Session, prefix: str) -> list[str]:
        rows = session.execute(
            "SELECT nspname FROM pg_catalog.pg_namespace"
            " WHERE starts_with(nspname, :prefix) ORDER BY nspname",
            {"prefix": prefix},
        )
        return [str(name) for (name,) in rows]

    def table_columns(self, session: Session, schema: str, table: str) -> list[str]:
        # information_schema hides what a role may not read, which is not the same as what is not there.
        rows = session.execute(
            "SELECT attname FROM pg_catalog.pg_attribute"
            " JOIN pg_catalog.pg_class ON pg_class.oid = attrelid"
            " JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace"
            " WHERE nspname = :schema AND relname = :table AND attnum > 0 AND NOT attisdropped"
            " ORDER BY attnum",
            {"schema": schema, "table": table},
        )
        return [str(name) for (name,) in rows]

    def row_as_json(self, alias: str, columns: Mapping[str, str], nested: Mapping[str, str]) -> str:
        added = (f" || jsonb_build_object({key}, coalesce({value}, '[]'))" for key, value in nested.items())
        return f"to_jsonb({alias}){''.join(added)}"

    def list_as_json(self, rows: str, order: str) -> str:
        return f"jsonb_agg({rows} ORDER BY {order})"

    def build_destination(self, credentials: str) -> Any:
        import dlt

        return dlt.destinations.postgres(credentials=credentials)

    def destination(self, target: Target, native: Any | None = None, **options: Any) -> Any:
        found = super().destination(
            target, native, credentials=uri_credentials(target.credentials), **options
        )
        # dlt writes parquet only where ADBC's driver is installed, which is not needed here.
        found.caps_params = {**found.caps_params, "loader_file_format_selector": None}
        return found

    def prepare_client(self, client: Any) -> None:
        ours, theirs = _sql_client_class(), client.sql_client
        client.sql_client = ours(
            theirs.dataset_name, theirs.staging_dataset_name, theirs.credentials, theirs.capabilities
        )
        client.create_load_job = partial(_load_job, client.create_load_job)

    def merge_job(self) -> Any:
        return _merge_job_class()

    def is_conflict(self, error: BaseException) -> bool:
        import psycopg2.errors

        return isinstance(error, (psycopg2.errors.DeadlockDetected, psycopg2.errors.SerializationFailure))

    def is_timeout(self, error: BaseException) -> bool:
        import psycopg2.errors

        return isinstance(error, psycopg2.errors.QueryCanceled)


#: A peer that vanished without a word ends a statement within this time, not within the kernel's two hours.
#: Options of libpq (PostgreSQL documentation, 34.1.2), seconds and milliseconds; a URI's own come first.
_NETWORK = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}


def _open(uri: str, **options: Any) -> Any:
    import psycopg2
    from psycopg2.extensions import parse_dsn

    given = parse_dsn(uri)
    patience: dict[str, Any] = {name: value for name, value in _NETWORK.items() if name not in given}
    return psycopg2.connect(uri, **{**patience, **options})


def _commit_each(native: Any) -> None:
    """Back to autocommit without a word to the server.

    psycopg2 would carry the isolation level over as a setting of the session.
    """
    if not native.autocommit:
        native.isolation_level = None
        native.autocommit = True


@cache
def _sql_client_class() -> Any:
    from dlt.destinations.impl.postgres.sql_client import Psycopg2SqlClient

    class SessionlessSqlClient(Psycopg2SqlClient):
        """dlt's, without its ``search_path`` in the startup packet, which pgbouncer refuses.

        All names are qualified anyway. Nor does it discard the session after an error, since behind a pooler
        that is somebody else's too.
        """

        def open_connection(self) -> Any:
            self._conn = _open(self.credentials.to_native_representation())
            self._conn.autocommit = True
            return self._conn

        def _reset_connection(self) -> None:
            self._conn.rollback()
            _commit_each(self._conn)

    return SessionlessSqlClient


def _load_job(theirs: Callable[..., Any], table: Any, path: str, *more: Any, **options: Any) -> Any:
    """The job that loads a file; dlt's own, unless it is a parquet file."""
    if path.endswith(".parquet"):
        return _copy_job_class()(path)
    return theirs(table, path, *more, **options)


@cache
def _copy_job_class() -> Any:
    from dlt.common.destination.client import RunnableLoadJob

    class CopyJob(RunnableLoadJob):
        """Copies a parquet file over the client's connection; dlt's needs ADBC and one of its own."""

        def run(self) -> None:
            client: Any = self._job_client
            sql = client.sql_client
            table = sql.make_qualified_table_name(self.load_table_name)
            with sql.native_connection.cursor() as cursor:
                copy_parquet(cursor, table, self._file_path, sql.escape_column_name)

    return CopyJob


@cache
def _merge_job_class() -> Any:
    from dlt.destinations.sql_jobs import SqlMergeFollowupJob

    class TidyMergeJob(SqlMergeFollowupJob):
        """dlt's, whose temporary tables would stay in a pooler's connection."""

        @classmethod
        def _to_temp_table(cls, *args: Any, **more: Any) -> str:
            return super()._to_temp_table(*args, **more).replace(" AS ", " ON COMMIT DROP AS ", 1)

    return TidyMergeJob


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())

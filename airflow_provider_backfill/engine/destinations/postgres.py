"""PostgreSQL."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from airflow_provider_backfill.engine.destinations.base import Dialect, Session, Target
from airflow_provider_backfill.engine.destinations.libpq import uri_credentials
from airflow_provider_backfill.exceptions import LedgerUnreachableError


class PostgresSession(Session):
    """A psycopg2 connection in autocommit mode."""

    mark = "%({})s"

    def _execute(self, text: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
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
                self.native.autocommit = True


def _meet(left: str, right: str) -> str:
    return (
        f"({left} IS NULL OR {right} IS NULL"
        f" OR string_to_array({left}, ',') && string_to_array({right}, ','))"
    )


class Postgres(Dialect):
    """PostgreSQL 12 and later. Every lock ends with its transaction, so that no pooler keeps one."""

    name = "postgres"
    schemes = ("postgresql", "postgres")
    session_class = PostgresSession
    fragments: ClassVar[Mapping[str, str]] = {
        # now() stands still from the begin of a transaction, which may have waited for a lock since.
        "now": "clock_timestamp()",
        "resources_meet": _meet("other.resource_name", "CAST(:resource_name AS text)"),
        "resources_meet_mine": _meet("other.resource_name", "mine.resource_name"),
        "planned_chunks": (
            "(SELECT * FROM json_to_recordset(CAST(:chunks AS json))"
            " AS chunk(chunk_id text, chunk_from timestamptz, chunk_to timestamptz, run_id text))"
        ),
    }

    @contextmanager
    def connect(self, target: Target, wait_seconds: float, *, read_only: bool = False) -> Iterator[Session]:
        import psycopg2

        try:
            native = psycopg2.connect(target.credentials, connect_timeout=math.ceil(wait_seconds))
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

    def lock(self, session: Session, key: str, *, shared: bool = False) -> None:
        number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big", signed=True)
        function = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        session.execute(f"SELECT {function}(:number)", {"number": number})

    def schemas(self, session: Session, prefix: str) -> list[str]:
        rows = session.execute(
            "SELECT nspname FROM pg_catalog.pg_namespace"
            " WHERE starts_with(nspname, :prefix) ORDER BY nspname",
            {"prefix": prefix},
        )
        return [str(name) for (name,) in rows]

    def table_columns(self, session: Session, schema: str, table: str) -> list[str]:
        rows = session.execute(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = :schema AND table_name = :table ORDER BY ordinal_position",
            {"schema": schema, "table": table},
        )
        return [str(name) for (name,) in rows]

    def build_destination(self, credentials: str) -> Any:
        import dlt

        return dlt.destinations.postgres(credentials=credentials)

    def destination(self, target: Target, native: Any | None = None, **options: Any) -> Any:
        return super().destination(target, native, credentials=uri_credentials(target.credentials), **options)

    def is_conflict(self, error: BaseException) -> bool:
        import psycopg2.errors

        return isinstance(error, (psycopg2.errors.DeadlockDetected, psycopg2.errors.SerializationFailure))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())

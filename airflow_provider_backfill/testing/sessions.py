"""Connections, statements, names and locks of a dialect."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest

from airflow_provider_backfill.engine.destinations import dialect_for, dialect_for_url
from airflow_provider_backfill.engine.destinations.base import Dialect, Session, Target
from airflow_provider_backfill.engine.destinations.postgres import Postgres
from airflow_provider_backfill.testing.base import PATIENCE, DialectTests, at_once, only, undone, written

#: How long two threads may wait for each other behind a lock that lets one in, seconds.
_MEETING = 0.3


class SessionTests(DialectTests):
    """`Feature.TRANSACTIONS` and `Feature.LOCKS`, and what statements rely on."""

    # The dialect

    def test_it_is_found_by_its_name_and_by_its_urls(self, dialect: Dialect) -> None:
        assert type(dialect_for(dialect.name)) is type(dialect)
        for scheme in dialect.schemes:
            assert type(dialect_for_url(f"{scheme}://somewhere/web")) is type(dialect)

    def test_it_says_what_the_statements_leave_to_it(self, dialect: Dialect) -> None:
        assert set(dialect.fragments) == set(Postgres.fragments)
        if dialect.session_class.mark.startswith("%"):
            # The driver would read it as the begin of a parameter.
            assert not [text for text in dialect.fragments.values() if "%" in text]

    def test_the_password_is_known_and_hidden(self, target: Target) -> None:
        hidden = target.redact(f"login with {target.credentials} failed")
        for password in target.dialect.passwords(target.credentials):
            assert password in target.secrets()
            assert password not in hidden
            assert password not in "".join(target.dialect.address(target.credentials) or ())

    # Statements

    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            2**62,
            'it\'s 100 % "quoted"; :name ${x} \\ → ü',
            "",
            datetime(2026, 3, 29, 1, 59, 59, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30))),
        ],
    )
    def test_a_value_comes_back_as_it_was_passed(self, session: Session, value: object) -> None:
        kinds = {type(None): "TEXT", bool: "BOOLEAN", int: "BIGINT", str: "TEXT", datetime: "TIMESTAMPTZ"}
        kind = kinds[type(value)]
        found = only(
            session.execute(
                f"SELECT CAST(:value AS {kind}) WHERE 'a' <> :other", {"value": value, "other": "b"}
            )
        )
        assert found == value
        if isinstance(found, datetime):
            assert found.utcoffset() is not None

    def test_a_statement_without_rows_has_none(self, session: Session, target: Target) -> None:
        assert session.execute(f"CREATE TABLE {target.table('plain')} (id BIGINT)") == []
        assert session.execute(f"SELECT id FROM {target.table('plain')}") == []

    def test_an_update_tells_which_rows_it_has_changed(self, session: Session, target: Target) -> None:
        table = target.table("plain")
        session.execute(f"CREATE TABLE {table} (id BIGINT, word TEXT)")
        session.execute(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'a'), (3, 'b')")
        changed = session.execute(f"UPDATE {table} SET word = 'c' WHERE word = 'a' RETURNING id")
        assert sorted(changed) == [(1,), (2,)]
        assert session.execute(f"UPDATE {table} SET word = 'c' WHERE word = 'a' RETURNING id") == []

    def test_the_databases_clock_runs(self, session: Session, dialect: Dialect) -> None:
        clock = f"SELECT {dialect.fragments['now']}"
        first, second = only(session.execute(clock)), only(session.execute(clock))
        assert first <= second
        assert abs(datetime.now(UTC) - first) < timedelta(days=1)

    # Transactions

    def test_a_transaction_spans_datasets(self, session: Session, target: Target, dialect: Dialect) -> None:
        other = f"{dialect.quote('backfill_stage_other')}.{dialect.quote('plain')}"
        tables = (target.table("plain"), other)
        dialect.create_schema(session, "backfill_stage_other")
        for table in tables:
            session.execute(f"CREATE TABLE {table} (id BIGINT)")

        def write() -> None:
            for table in tables:
                session.execute(f"INSERT INTO {table} VALUES (1)")

        def counts() -> list[int]:
            return [only(session.execute(f"SELECT count(*) FROM {table}")) for table in tables]

        with undone(session):
            write()
        assert counts() == [0, 0]
        with session.transaction():
            write()
        assert counts() == [1, 1]

    def test_a_statement_that_fails_undoes_its_transaction_and_the_session_goes_on(
        self, session: Session, target: Target
    ) -> None:
        table = target.table("plain")
        session.execute(f"CREATE TABLE {table} (id BIGINT)")

        def fail() -> None:
            with session.transaction():
                session.execute(f"INSERT INTO {table} VALUES (1)")
                session.execute(f"SELECT * FROM {target.table('no_such_table')}")

        with pytest.raises(Exception, match="no_such_table") as caught:
            fail()
        assert not target.dialect.is_conflict(caught.value)
        assert session.execute(f"SELECT * FROM {table}") == []

    def test_tables_are_made_in_a_transaction_or_not_at_all(self, session: Session, target: Target) -> None:
        with undone(session):
            session.execute(f"CREATE TABLE {target.table('plain')} (id BIGINT)")
        assert target.dialect.table_columns(session, target.dataset_name, "plain") == []

    def test_a_connection_to_read_cannot_write(self, target: Target) -> None:
        with written(target) as session:
            target.dialect.create_schema(session, target.dataset_name)
            session.execute(f"CREATE TABLE {target.table('plain')} (id BIGINT)")
        with target.connect(PATIENCE, read_only=True) as session:
            assert session.execute(f"SELECT * FROM {target.table('plain')}") == []
            with pytest.raises(Exception, match=r"(?i)read.?only"):
                session.execute(f"INSERT INTO {target.table('plain')} VALUES (1)")
        assert target.exists()

    # Names

    def test_names_are_taken_as_they_are(self, session: Session, target: Target, dialect: Dialect) -> None:
        odd = 'select "x" Ä'
        session.execute(f"CREATE TABLE {target.table(odd)} ({dialect.quote(odd)} BIGINT, plain BIGINT)")
        assert dialect.table_columns(session, target.dataset_name, odd) == [odd, "plain"]
        assert dialect.table_columns(session, target.dataset_name, "no_such_table") == []
        assert dialect.table_columns(session, "no_such_dataset", odd) == []

    def test_prefixes_of_names_have_no_wildcards(
        self, session: Session, target: Target, dialect: Dialect
    ) -> None:
        for name in ("stage_a_1", "stage_a_2", "stageXa_3"):
            dialect.create_schema(session, name)
            dialect.create_schema(session, name)
            session.execute(f"CREATE TABLE {target.table(name)} (id BIGINT)")
        assert dialect.schemas(session, "stage_a") == ["stage_a_1", "stage_a_2"]
        assert dialect.tables(session, target.dataset_name, "stage_a") == ["stage_a_1", "stage_a_2"]

    def test_a_dataset_is_dropped_with_its_tables(self, session: Session, dialect: Dialect) -> None:
        dialect.create_schema(session, "stage_a_1")
        session.execute(f"CREATE TABLE {dialect.quote('stage_a_1')}.plain (id BIGINT)")
        for _ in range(2):
            dialect.drop_schema(session, "stage_a_1")
        assert dialect.schemas(session, "stage_a") == []

    # Rows

    def test_rows_that_are_equal_are_told_apart(self, session: Session, target: Target) -> None:
        table, (row_id, kind) = target.table("plain"), target.dialect.row_id
        session.execute(f"CREATE TABLE {table} (word TEXT)")
        session.execute(f"INSERT INTO {table} VALUES ('a'), ('a'), ('a')")
        first = f"(SELECT CAST({row_id} AS {kind}) FROM {table} ORDER BY {row_id} LIMIT 1)"
        session.execute(f"DELETE FROM {table} WHERE {row_id} = {first}")
        assert session.execute(f"SELECT word FROM {table}") == [("a",), ("a",)]

    def test_a_row_as_json_is_whole(self, session: Session, target: Target, dialect: Dialect) -> None:
        session.execute(f"CREATE TABLE {target.table('plain')} (id BIGINT, {dialect.quote('order')} TEXT)")
        session.execute(f"INSERT INTO {target.table('plain')} VALUES (2, NULL), (1, 'it''s \"a\"')")
        columns = {dialect.quote("id"): "bigint", dialect.quote("order"): "text"}
        row = dialect.row_as_json("mine", columns, {})
        rows = dialect.list_as_json(row, "mine.id")
        query = f"SELECT CAST({rows} AS TEXT) FROM {target.table('plain')} AS mine"
        assert json.loads(only(session.execute(query))) == [
            {"id": 1, "order": 'it\'s "a"'},
            {"id": 2, "order": None},
        ]
        none = f"(SELECT {rows} FROM {target.table('plain')} AS mine WHERE id > 2)"
        nested = dialect.row_as_json("mine", columns, {"'items'": none})
        query = f"SELECT CAST({nested} AS TEXT) FROM {target.table('plain')} AS mine WHERE id = 1"
        assert json.loads(only(session.execute(query))) == {"id": 1, "order": 'it\'s "a"', "items": []}

    # Locks

    @pytest.mark.parametrize(
        ("keys", "shared", "meet"),
        [(("a", "a"), False, False), (("a", "b"), False, True), (("a", "a"), True, True)],
        ids=["one at a time", "another key", "shared"],
    )
    def test_a_lock_lets_one_in_at_a_time(
        self, target: Target, keys: tuple[str, str], shared: bool, meet: bool
    ) -> None:
        """Two threads want to meet behind their locks, which they can only if both are let in."""
        inside = threading.Barrier(2)

        def enter(key: str) -> bool:
            with written(target) as session:
                target.dialect.lock(session, key, shared=shared)
                with suppress(threading.BrokenBarrierError):
                    inside.wait(PATIENCE if meet and not target.dialect.single_process else _MEETING)
                    return True
            return False

        met = at_once([lambda key=key: enter(key) for key in keys])  # type: ignore[misc]
        # Where a process has the database to itself, its threads take turns whatever they do.
        assert met == [meet and not target.dialect.single_process] * 2

    def test_a_lock_ends_with_its_transaction(self, target: Target) -> None:
        with target.connect(PATIENCE) as first, target.connect(PATIENCE) as second:
            for session in (first, second, first):
                with undone(session):
                    target.dialect.lock(session, "a")

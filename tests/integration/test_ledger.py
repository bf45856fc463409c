"""The ledger's table, and its seeding, on real databases."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime

import pytest

from airflow_provider_backfill.engine.ledger import OWN_COLUMNS, Ledger
from airflow_provider_backfill.engine.plan import make_plan, source_key
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from airflow_provider_backfill.engine.window import Window
from airflow_provider_backfill.exceptions import (
    ChunkMissingError,
    DuplicateChunksError,
)
from tests.support.crowds import crowd
from tests.support.ledgers import (
    counted,
    everything,
    foreign_row,
    foreign_table,
    opened,
    plan,
    plan_and_seed,
    seeded,
    sql,
    take,
)

pytestmark = pytest.mark.integration

TIME = "TIMESTAMP WITH TIME ZONE"
TYPES = {
    "VARCHAR": "TEXT",
    "bigint": "BIGINT",
    "character varying": "TEXT",
    "text": "TEXT",
    "timestamp with time zone": TIME,
}

#: Names, order, types and whether NULL is refused: the contract with other tools.
SHARED = [
    ("pipeline_name", "TEXT", "NO"),
    ("source_section", "TEXT", "NO"),
    ("resource_name", "TEXT", "YES"),
    ("backfill_id", "TEXT", "NO"),
    ("chunk_id", "TEXT", "NO"),
    ("chunk_from", TIME, "NO"),
    ("chunk_to", TIME, "NO"),
    ("backfill_from", TIME, "NO"),
    ("backfill_to", TIME, "NO"),
    ("chunk_size", "TEXT", "NO"),
    ("status", "TEXT", "NO"),
    ("claimed_by", "TEXT", "YES"),
    ("claimed_at", TIME, "YES"),
    ("started_at", TIME, "YES"),
    ("completed_at", TIME, "YES"),
    ("records_loaded", "BIGINT", "YES"),
    ("run_id", "TEXT", "NO"),
]
TABLES = [("web_raw", "_dlt_backfill_controls"), ("web_raw", "_dlt_backfills")]
OURS = [
    "attempt",
    "claim_token",
    "lease_expires_at",
    "will_retry",
    "error",
    "load_ids",
    "covered_by",
    "dag_id",
    "dag_run_id",
    "task_id",
    "map_index",
    "updated_at",
]


def columns(target):
    rows = sql(
        target,
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
        " WHERE table_schema = :schema AND table_name = '_dlt_backfills' ORDER BY ordinal_position",
        schema=target.dataset_name,
    )
    return [(name, TYPES.get(kind, kind), nullable) for name, kind, nullable in rows]


def tables(target):
    rows = sql(target, "SELECT table_schema, table_name FROM information_schema.tables")
    return sorted(row for row in rows if row[0] not in ("information_schema", "pg_catalog"))


def refuses_a_chunk_twice(target):
    """Whether the unique index is there: the same row cannot be written again."""
    names = ", ".join(name for name, _, _ in SHARED)
    with pytest.raises(Exception, match=r"(?i)duplicate key"):
        sql(target, f"INSERT INTO {{ledger}} ({names}) SELECT {names} FROM {{ledger}} LIMIT 1")


# --- the table


def test_the_table_is_as_the_contract_says(target):
    seeded(target, plan())
    found = columns(target)
    assert found[:17] == SHARED
    assert [name for name, _, _ in found[17:]] == OURS == list(OWN_COLUMNS)
    assert {nullable for _, _, nullable in found[17:]} == {"YES"}
    assert tables(target) == TABLES
    refuses_a_chunk_twice(target)


def test_rows_as_objects_have_the_tables_columns(target):
    seeded(target)
    assert [field.name for field in fields(ChunkRow)] == [
        *(name for name, _, _ in columns(target)),
        "lease_left",
    ]


def test_preparing_again_changes_nothing(target):
    seeded(target, plan())
    before = columns(target), everything(target)
    seeded(target)
    seeded(target)
    assert (columns(target), everything(target)) == before


def test_a_dataset_name_that_needs_quotes_is_quoted(target):
    odd = replace(target, dataset_name='web "raw" select')
    seeded(odd, plan())
    assert len(everything(odd)) == 5


def test_a_ledger_that_does_not_exist_is_told_apart(target):
    with opened(target) as ledger:
        assert not ledger.exists()
        ledger.check(plan())
        assert not ledger.exists()
        ledger.prepare()
        assert ledger.exists()
        assert ledger.chunks(plan().backfill_id) == []
        with pytest.raises(ChunkMissingError, match=r"chunk 000000 of backfill d7a7c6e21e0d8ecb is not in"):
            ledger.chunk(plan().backfill_id, "000000")


def test_eight_planners_that_start_together_make_one_table_with_one_row_a_chunk(pg_target):
    backfill = plan(300)
    with crowd(8) as processes:
        assert processes.run(plan_and_seed, pg_target, backfill) == [300] * 8
    assert tables(pg_target) == TABLES
    assert [row.chunk_id for row in everything(pg_target)] == [chunk.chunk_id for chunk in backfill.chunks]
    assert columns(pg_target)[:17] == SHARED
    refuses_a_chunk_twice(pg_target)


def test_planners_take_turns_at_one_duckdb_file(duck_target):
    backfill = plan(30)
    # Connecting waits for the file, so here the planners cannot stand at a barrier with it open.
    with crowd(3) as processes:
        answers = processes.run(plan_in_turn, duck_target, backfill)
    for rows in answers:
        assert rows == 30
    assert len(everything(duck_target)) == 30
    refuses_a_chunk_twice(duck_target)


def plan_in_turn(number, barrier, target, backfill):
    barrier.wait(60)
    seeded(target, backfill)
    return len(everything(target))


# --- a table that another tool made


def test_a_foreign_table_gets_our_columns_and_keeps_its_rows(target):
    backfill = plan()
    done = datetime(2026, 2, 1, 12, tzinfo=UTC)
    foreign_table(
        target,
        [
            foreign_row(backfill, 0, "completed", completed_at=done, records_loaded=7, claimed_by="ops:1"),
            foreign_row(backfill, 1, "failed", claimed_by="ops:1"),
        ],
    )
    before = sql(target, "SELECT * FROM {ledger} ORDER BY chunk_id")
    seeded(target, backfill)
    assert [name for name, _, _ in columns(target)] == [name for name, _, _ in SHARED] + OURS
    assert columns(target)[:17] == SHARED
    after = sql(target, "SELECT * FROM {ledger} ORDER BY chunk_id")
    assert [row[:17] for row in after[:2]] == before
    assert {value for row in after[:2] for value in row[17:]} == {None}
    rows = everything(target)
    assert [str(row.status) for row in rows] == ["completed", "failed", "pending", "pending", "pending"]
    assert (rows[0].records_loaded, rows[0].completed_at) == (7, done)
    refuses_a_chunk_twice(target)


def test_a_foreign_table_can_be_read_before_anybody_adds_columns(target):
    backfill = plan()
    foreign_table(target, [foreign_row(backfill, 0, "completed"), foreign_row(backfill, 1, "running")])
    with opened(target) as ledger:
        ledger.check(backfill)
        rows = ledger.chunks(backfill.backfill_id)
        assert rows == ledger.dataset_chunks() == ledger.dataset_chunks("web_events")
    assert [row.status for row in rows] == [ChunkStatus.COMPLETED, ChunkStatus.RUNNING]
    assert [row.held for row in rows] == [False, True]
    assert {getattr(row, name) for row in rows for name in OURS} == {None}
    assert len(columns(target)) == 17


def test_a_foreign_table_with_a_chunk_twice_is_refused_and_left_alone(target):
    backfill = plan()
    rows = [foreign_row(backfill, chunk, "pending") for chunk in (0, 1, 2, 2, 1)]
    foreign_table(target, rows)
    for step in (lambda ledger: ledger.prepare(), lambda ledger: ledger.check(backfill)):
        with opened(target) as ledger, pytest.raises(DuplicateChunksError) as caught:
            step(ledger)
        assert (caught.value.backfill_id, caught.value.chunk_id) == (backfill.backfill_id, "000001")
    assert [name for name, _, _ in columns(target)] == [name for name, _, _ in SHARED]
    assert len(everything(target)) == 5


def test_of_a_chunk_that_stands_twice_the_row_stays_that_is_furthest(target):
    backfill = plan()
    early, late = backfill.window.interval.instants
    foreign_table(
        target,
        [
            foreign_row(backfill, 0, "pending"),
            foreign_row(backfill, 0, "completed", claimed_by="b", completed_at=late),
            foreign_row(backfill, 0, "completed", claimed_by="a", completed_at=early),
            foreign_row(backfill, 1, "failed"),
            foreign_row(backfill, 1, "running"),
            foreign_row(backfill, 2, "pending"),
            foreign_row(backfill, 3, "pending"),
            foreign_row(backfill, 3, "pending"),
            foreign_row(backfill, 4, "pending"),
            foreign_row(backfill, 4, "claimed"),
        ],
    )
    with opened(target) as ledger:
        assert ledger.drop_duplicates() == 5
        rows = ledger.chunks(backfill.backfill_id)
        assert [str(row.status) for row in rows] == ["completed", "running", "pending", "pending", "claimed"]
        assert rows[0].claimed_by == "a"
        assert ledger.drop_duplicates() == 0
    refuses_a_chunk_twice(target)


# --- seeding


def test_seeding_writes_the_plan_and_nothing_twice(target):
    backfill = plan()
    seeded(target, backfill, backfill)
    with opened(target) as ledger:
        ledger.complete(take(ledger, backfill, 1), 3, ["1767225600.5"])
        ledger.seed(backfill)
        rows = ledger.chunks(backfill.backfill_id)
    assert [row.interval for row in rows] == [chunk.interval for chunk in backfill.chunks]
    assert [row.run_id for row in rows] == [chunk.run_id for chunk in backfill.chunks]
    assert [row.number for row in rows] == [1, 2, 3, 4, 5]
    assert [str(row.status) for row in rows] == ["pending", "completed", "pending", "pending", "pending"]
    first = rows[0]
    assert (first.pipeline_name, first.source_section, first.resource_name) == (
        "web_events",
        "web_events",
        None,
    )
    assert (first.chunk_size, first.backfill_from, first.backfill_to) == (
        "1d",
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 6, tzinfo=UTC),
    )


def test_a_missing_row_is_put_back(target):
    backfill = plan()
    seeded(target, backfill)
    sql(target, "DELETE FROM {ledger} WHERE chunk_id = '000002'")
    seeded(target, backfill)
    assert [row.chunk_id for row in everything(target)] == [f"{index:06d}" for index in range(5)]


def test_a_plan_of_10_000_chunks_is_seeded_in_one_statement(target, monkeypatch):
    backfill = plan(10_000, start="1998-01-01")
    with target.connect(10) as session:
        ledger = Ledger(session, target)
        ledger.prepare()
        with counted(session, monkeypatch) as statements:
            ledger.seed(backfill)
        assert len(statements) == 1
        with counted(session, monkeypatch) as statements:
            ledger.seed(backfill)
        assert len(statements) == 1
        rows = ledger.chunks(backfill.backfill_id)
    assert [(row.chunk_id, row.interval) for row in rows] == [
        (chunk.chunk_id, chunk.interval) for chunk in backfill.chunks
    ]


def test_sources_selections_and_microseconds_are_stored_as_asked(target):
    window = Window.parse("2026-01-01T00:00:00.123456+05:30", "2026-01-02T00:00:00Z", "Europe/Berlin")
    odd = make_plan(source_key("Wétter '\"; --%s", ["b", "a"]), window, "7h")
    seeded(target, odd)
    rows = everything(target)
    assert {row.source_section for row in rows} == {"Wétter '\"; --%s"}
    assert {row.resource_name for row in rows} == {"a,b"}
    assert {row.chunk_size for row in rows} == {"7h@Europe/Berlin"}
    assert [row.interval for row in rows] == [chunk.interval for chunk in odd.chunks]
    with opened(target) as ledger:
        ledger.check(odd)

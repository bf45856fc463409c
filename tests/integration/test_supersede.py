"""Loading a chunk again where rows do not say which load they came with: Arrow tables, as dlt loads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import dlt
import pyarrow as pa
import pytest
import sqlalchemy as sa
from dlt.extract.source import DltSource

from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import RestateError
from tests.support.sources import day, events, source_of
from tests.support.worlds import IDS, World

Rows = list[dict[str, Any]]
SELECT = "SELECT id, note FROM @events ORDER BY id, note"


@pytest.fixture
def world(target: Target, settings: Settings) -> Iterator[World]:
    world = World(target, settings)
    yield world
    assert world.leftovers() == []


def arrow(rows: Rows, kind: Any, at: pa.DataType, **hints: Any) -> Callable[[], DltSource]:
    """Rows as one Arrow table, whose cursor ``at`` is of a Python type and an Arrow type."""

    def make() -> DltSource:
        @dlt.source(name="web_events")
        def wrapped() -> Any:
            @dlt.resource(name="events", **hints)
            def resource(at_: Any = dlt.sources.incremental[kind]("at")) -> Any:
                schema = pa.schema([("id", pa.int64()), ("at", at), ("note", pa.string())])
                yield pa.Table.from_pylist(rows, schema=schema)

            return resource

        return wrapped()

    return make


def rows_of(times: Callable[[datetime], Any]) -> Rows:
    """Two rows a day: at its first instant, which is the end of the day before, and at its last second."""
    return [
        {"id": number * 10 + offset, "at": times(time), "note": "old"}
        for number in (1, 2, 3)
        for offset, time in enumerate((day(number, 0), day(number, 23).replace(minute=59, second=59)))
    ]


def restate(world: World, backfill: Backfill, plan: BackfillPlan, *chunk_ids: str) -> None:
    with world.target.connect(5) as session:
        backfill.runner.restate(session, plan.backfill_id, chunk_ids)


def naive(time: datetime) -> datetime:
    return time.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("kind", "at", "times", "form"),
    [
        (datetime, pa.timestamp("us", "UTC"), lambda time: time, None),
        (datetime, pa.timestamp("ms", "UTC"), lambda time: time, None),
        (datetime, pa.timestamp("us"), naive, None),
        (datetime, pa.timestamp("us"), naive, "naive"),
        (int, pa.int64(), lambda time: int(time.timestamp() * 1_000), "epoch_ms"),
        (str, pa.string(), lambda time: f"{time:%Y-%m-%dT%H:%M:%SZ}", "%Y-%m-%dT%H:%M:%SZ"),
        (date, pa.date32(), lambda time: time.date(), None),
    ],
    ids=["aware", "milliseconds", "undeclared-naive", "naive", "epoch", "text", "date"],
)
def test_rows_of_the_chunk_are_replaced_by_their_cursor(
    world: World, kind: Any, at: pa.DataType, times: Callable[[datetime], Any], form: str | None
) -> None:
    rows = rows_of(times)
    formats: dict[str, Any] = {"cursor_format": {"*": form}} if form else {}
    backfill, plan = world.seeded(arrow(rows, kind, at), **formats)
    world.run(backfill, plan)
    old = [(row["id"], "old") for row in rows]
    assert world.query(SELECT) == old
    rows[2:4] = [{**rows[2], "note": "new"}, {**rows[2], "id": 22, "note": "new"}]
    restate(world, backfill, plan, "000001")
    assert world.query(SELECT) == old  # the old version stays until the new one is there
    [outcome] = world.run(backfill, plan, 2)
    assert (outcome.loaded, outcome.records) == (True, 2)
    assert world.query(SELECT) == [*old[:2], (20, "new"), (22, "new"), *old[4:]]


def test_a_chunk_of_clocks_in_a_zone_is_replaced(world: World) -> None:
    """The column has no zone, and the days are Berlin's."""
    rows = [
        {"id": number, "at": datetime(2024, 1, number, hour), "note": "old"}  # noqa: DTZ001
        for number, hour in ((1, 0), (2, 0), (3, 0))
    ]
    backfill = Backfill(
        source=SourceSpec(
            reference=arrow(rows, datetime, pa.timestamp("us")), cursor_format={"*": "naive@Europe/Berlin"}
        ),
        target=world.target,
        window=Window.parse("2024-01-01", "2024-01-04", "Europe/Berlin"),
        chunk=ChunkSize.parse("1d"),
        settings=world.settings,
    )
    plan = backfill.plan()
    backfill.seed(plan)
    world.run(backfill, plan)
    rows[1]["note"] = "new"
    restate(world, backfill, plan, "000001")
    world.run(backfill, plan, 2)
    assert world.query(SELECT) == [(1, "old"), (2, "new"), (3, "old")]


def test_a_chunk_of_whole_numbers_is_replaced(world: World) -> None:
    rows = [{"id": number, "at": number, "note": "old"} for number in range(30)]
    backfill = Backfill(
        source=SourceSpec(reference=arrow(rows, int, pa.int64())),
        target=world.target,
        window=Window.parse(0, 30),
        chunk=ChunkSize.parse(10),
        settings=world.settings,
    )
    plan = backfill.plan()
    backfill.seed(plan)
    world.run(backfill, plan)
    rows[10:20] = [{"id": 10, "at": 10, "note": "new"}]
    restate(world, backfill, plan, "000001")
    world.run(backfill, plan, 2)
    assert world.query("SELECT note, count(*) FROM @events GROUP BY note ORDER BY note") == [
        ("new", 1),
        ("old", 20),
    ]


def test_merged_rows_that_the_source_has_no_more_go_too(world: World) -> None:
    rows = rows_of(lambda time: time)
    source = arrow(rows, datetime, pa.timestamp("us", "UTC"), write_disposition="merge", primary_key="id")
    backfill, plan = world.seeded(source)
    world.run(backfill, plan)
    rows[2:4] = [{**rows[2], "note": "new"}]
    restate(world, backfill, plan, "000001")
    world.run(backfill, plan, 2)
    assert world.query(SELECT) == [(10, "old"), (11, "old"), (20, "new"), (30, "old"), (31, "old")]


def test_a_chunk_that_has_no_rows_any_more_is_emptied(world: World) -> None:
    rows = rows_of(lambda time: time)
    backfill, plan = world.seeded(arrow(rows, datetime, pa.timestamp("us", "UTC")))
    world.run(backfill, plan)
    del rows[2:4]
    restate(world, backfill, plan, "000001")
    world.run(backfill, plan, 2)
    assert [number for number, _ in world.query(SELECT)] == [10, 11, 30, 31]


def test_a_chunk_that_had_no_rows_takes_none_of_others_away(world: World) -> None:
    """Whoever loaded rows of that day by hand keeps them."""
    rows = rows_of(lambda time: time)
    kept = rows[2:4]
    del rows[2:4]
    backfill, plan = world.seeded(arrow(rows, datetime, pa.timestamp("us", "UTC")))
    world.run(backfill, plan)
    world.query(
        "INSERT INTO @events (id, \"at\", note) SELECT 99, TIMESTAMPTZ '2024-01-02 12:00:00+00', 'other'"
    )
    rows[2:2] = kept
    restate(world, backfill, plan, "000001")
    world.run(backfill, plan, 2)
    assert [number for number, _ in world.query(SELECT)] == [10, 11, 20, 21, 30, 31, 99]


def test_tables_of_resources_that_are_not_loaded_are_left_alone(world: World) -> None:
    """Two resources of one source; the backfill of one of them does not touch the other's rows."""
    rows = rows_of(lambda time: time)

    @dlt.source(name="web_events")
    def both() -> Any:
        def resource(at: Any = dlt.sources.incremental[datetime]("at")) -> Any:
            yield pa.Table.from_pylist(rows)

        return [dlt.resource(resource, name="events"), dlt.resource(resource, name="clicks")]

    for name in ("clicks", "events"):
        backfill, plan = world.seeded(both, resources=(name,))
        world.run(backfill, plan)
    rows.clear()
    restate(world, backfill, plan, "000001")
    world.run(backfill, plan, 2)
    assert world.query("SELECT count(*) FROM @events") == [(4,)]
    assert world.query("SELECT count(*) FROM @clicks") == [(6,)]


def test_a_source_bounded_by_its_arguments_says_the_column(world: World) -> None:
    rows = rows_of(lambda time: time)

    def made(since: str) -> DltSource:
        @dlt.source(name="web_events")
        def wrapped() -> Any:
            return dlt.resource([pa.Table.from_pylist(rows)], name="events")

        return wrapped()

    spec: dict[str, Any] = {"arguments": {"since": "{chunk.start}"}, "bounded_by": "kwargs"}
    backfill, plan = world.seeded(made, cursor_column="at", **spec)
    world.run(backfill, plan)
    rows[2]["note"] = "new"
    restate(world, backfill, plan, "000001")
    world.run(backfill, plan, 2)
    assert [note for _, note in world.query(SELECT)] == ["old", "old", "new", "old", "old", "old"]

    without = world.backfill(made, **spec)
    with pytest.raises(RestateError, match="no cursor of its resource tells which chunk it belongs to"):
        restate(world, without, plan, "000001")


# Tables of a database


def test_tables_that_sql_database_reads_as_arrow_are_replaced(world: World, tmp_path: Path) -> None:
    from dlt.sources.sql_database import sql_database

    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.sqlite")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE events (id INTEGER PRIMARY KEY, at TIMESTAMP, note TEXT)"))
        for row in rows_of(lambda time: f"{time:%Y-%m-%d %H:%M:%S.%f}"):
            connection.execute(sa.text("INSERT INTO events VALUES (:id, :at, :note)"), row)

    def shop() -> DltSource:
        source = sql_database(f"sqlite:///{tmp_path}/shop.sqlite", backend="pyarrow", table_names=["events"])
        source.events.apply_hints(incremental=dlt.sources.incremental[datetime]("at"))
        return source

    backfill, plan = world.seeded(shop, name="web_events", cursor_format={"events": "naive"})
    world.run(backfill, plan)
    assert len(world.query(SELECT)) == 6
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM events WHERE id = 21"))
        connection.execute(sa.text("UPDATE events SET note = 'new' WHERE id = 20"))
    restate(world, backfill, plan, "000001")
    world.run(backfill, plan, 2)
    assert world.query(SELECT) == [(10, "old"), (11, "old"), (20, "new"), (30, "old"), (31, "old")]


# Refused


def test_rows_that_no_column_tells_are_refused_before_anything_changes(world: World) -> None:
    """A transformer of Arrow tables has its parent's bounds, and no column of them."""
    rows = rows_of(lambda time: time)

    @dlt.source(name="web_events")
    def source() -> Any:
        @dlt.resource(name="days", selected=False)
        def days(at: Any = dlt.sources.incremental[datetime]("at")) -> Any:
            yield from rows

        @dlt.transformer(name="events", data_from=days)
        def details(row: Any) -> Any:
            yield pa.Table.from_pylist([{"id": row["id"], "note": row["note"]}])

        return days, details

    backfill, plan = world.seeded(source)
    world.run(backfill, plan)
    with pytest.raises(RestateError, match=r"table events cannot be loaded again: .* no cursor of its"):
        restate(world, backfill, plan, "000001")
    with pytest.raises(RestateError):
        backfill.check_restatable()
    assert world.row(plan, 2).status is ChunkStatus.COMPLETED
    # Whoever goes around the check does not get rows twice either.
    with world.target.connect(5) as session:
        Ledger(session, world.target).restate(plan.backfill_id, "000001")
    with pytest.raises(RestateError):
        world.run(backfill, plan, 2)
    assert world.row(plan, 2).status is ChunkStatus.FAILED
    assert len(world.query(SELECT)) == 6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"column": "seen"}, r"rows were loaded by another cursor column \(at\) before"),
        ({"column": "note"}, "its cursor column 'note' is text, which no datetime bounds"),
        ({"column": "late"}, "its cursor column 'late' is missing"),
    ],
)
def test_another_cursor_than_the_rows_were_loaded_by_is_refused(
    world: World, changes: dict[str, str], message: str
) -> None:
    rows = [{**row, "seen": row["at"]} for row in rows_of(lambda time: time)]

    def by(column: str) -> Callable[[], DltSource]:
        @dlt.source(name="web_events")
        def source() -> Any:
            @dlt.resource(name="events")
            def resource(at: Any = dlt.sources.incremental[datetime](column)) -> Any:
                yield pa.Table.from_pylist(rows)

            return resource

        return source

    backfill, plan = world.seeded(by("at"))
    world.run(backfill, plan)
    changed = world.backfill(by(**changes))
    with pytest.raises(RestateError, match=message):
        restate(world, changed, plan, "000001")
    assert world.row(plan, 2).status is ChunkStatus.COMPLETED


# Rows that say their load


def test_nested_tables_that_were_declared_and_never_filled_are_no_hindrance(world: World) -> None:
    rows = [{**row, "items": []} for row in events(3)]
    source = source_of(
        lambda: rows,
        nested_hints={"items": dlt.mark.make_nested_hints(columns=[{"name": "sku", "data_type": "text"}])},
    )
    backfill, plan = world.seeded(source)
    world.run(backfill, plan)
    assert not world.target_has("events__items")
    rows[1] = {**rows[1], "id": 22}
    restate(world, backfill, plan, "000001")
    world.run(backfill, plan, 2)
    assert world.query(IDS) == [(1, 10), (3, 30), (22, 20)]
    # The nested table comes with the version that fills it, and goes empty with the one after.
    rows[1] = events(3)[1]
    for count in (2, 0):
        restate(world, backfill, plan, "000001")
        world.run(backfill, plan, 2)
        assert world.query("SELECT count(*) FROM @events__items") == [(count,)]
        rows[1] = {**rows[1], "items": []}


def test_rows_of_other_loads_in_the_interval_stay(world: World) -> None:
    """The pipeline that loads forward has brought a row of that day, too."""
    backfill, plan = world.seeded(source_of(events()))
    world.run(backfill, plan)
    world.query(
        'INSERT INTO @events (id, "at", "order", _dlt_id, _dlt_load_id) '
        "SELECT 99, \"at\", 990, 'forward', '1.0' FROM @events WHERE id = 2"
    )
    restate(world, backfill, plan, "000001")
    world.run(backfill, plan, 2)
    assert world.query(IDS) == [(1, 10), (2, 20), (3, 30), (99, 990)]

"""Load files of our own choice: what arrives is what dlt's own choice would have brought."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import dlt
import pyarrow as pa
import pytest
from dlt.common.wei import Wei

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.settings import Settings
from tests.support.sources import EPOCH, day, source_of
from tests.support.worlds import World

INDIA = timezone(timedelta(hours=5, minutes=30))
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "at": day(1),
        "text": "",
        "integer": -(2**63),
        "number": math.inf,
        "truth": False,
        "exact": Decimal("-1234567890.123456789"),
        "bytes": b"\x00\xff\\x22\n",
        "day": date(1600, 2, 29),
        "clock": time(23, 59, 59, 999999),
        "elsewhere": datetime(2026, 1, 1, 12, tzinfo=INDIA),
        "document": {"a": [1, {"b": None}], "ü": 'q"uote'},
        "items": [{"sku": ""}, {"sku": None, "count": 2}],
    },
    {
        "id": 2,
        "at": day(1),
        "text": 'a "quoted", text\\.\n\\.\r\n\\N\ttab; ünï ☃ 𝄞',
        "integer": 2**63 - 1,
        "number": -0.1,
        "truth": True,
        "exact": Decimal("0"),
        "bytes": b"",
        "day": date(9999, 12, 31),
        "clock": time(0),
        "elsewhere": datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
        "document": [],
        "items": [],
    },
    {"id": 3, "at": day(1), "text": "\\N", "number": 1e-300, "document": "text"},
    {"id": 4, "at": day(1), "text": "NULL", "number": math.nan, "exact": Decimal("1e9")},
    {"id": 5, "at": day(1), **dict.fromkeys(("text", "integer", "bytes", "day", "clock", "elsewhere"))},
]
HINTS: dict[str, Any] = {"document": {"data_type": "json"}}
ARROW = {
    "at": pa.array([day(1), day(1)], pa.timestamp("us", "Asia/Kolkata")),
    "naive": pa.array([1_767_268_800_000_000_000, None], pa.timestamp("ns")),
    "list": pa.array([[1, None], None]),
    "struct": pa.array([{"a": "ü"}, None]),
    "code": pa.array(["x", None]).dictionary_encode(),
    "long": pa.array(["", None], pa.large_string()),
    "bytes": pa.array([b"\xff", None]),
    "fixed": pa.array([b"ab", None], pa.binary(2)),
    "small": pa.array([1, None], pa.int8()),
    "single": pa.array([0.5, None], pa.float32()),
    "exact": pa.array([Decimal("1.23"), None], pa.decimal128(10, 2)),
    "clock": pa.array([time(1), None], pa.time32("s")),
    "day": pa.array([date(2026, 1, 1), None]),
}


@pytest.fixture
def world(target: Target, settings: Settings) -> World:
    return World(target, settings)


def load_plainly(world: World, source: Callable[[], Any], directory: Path) -> None:
    """Load all that a source has by dlt alone, into the dataset ``plain``."""
    dialect = world.target.dialect
    pipeline = dlt.pipeline(
        pipeline_name="plain",
        pipelines_dir=str(directory),
        destination=dialect.build_destination(world.target.credentials),
        dataset_name="plain",
    )
    pipeline.run(source())


def rows(world: World, dataset: str, table: str, columns: Iterable[str], order: str) -> list[list[Any]]:
    names = ", ".join(f'"{name}"' for name in columns)
    with world.target.connect(5) as session:
        found = session.execute(f"SELECT {names} FROM {dataset}.{table} ORDER BY {order}")
    return [[bytes(value) if isinstance(value, memoryview) else value for value in row] for row in found]


def assert_as_plain(world: World, table: str, columns: Iterable[str], order: str) -> None:
    ours, plain = (
        # NaN is not equal to itself.
        repr(rows(world, dataset, table, columns, order))
        for dataset in (world.target.dataset_name, "plain")
    )
    assert ours == plain


def test_every_type_arrives_as_dlt_would_load_it(world: World, tmp_path: Path) -> None:
    source = source_of(ROWS, columns=HINTS)
    backfill, plan = world.seeded(source, 1)
    world.run(backfill, plan)
    load_plainly(world, source, tmp_path)
    assert_as_plain(world, "events", [name for name in ROWS[0] if name != "items"], "id")
    assert_as_plain(world, "events__items", ["sku", "count", "_dlt_list_idx"], "_dlt_list_idx")


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (Decimal("1.12345678901234"), {}),
        (Decimal("1.129"), {"data_type": "decimal", "precision": 10, "scale": 2}),
        (Wei("1.5"), {}),
        (b"a", {"data_type": "binary", "precision": 4}),
    ],
)
def test_what_arrow_cannot_hold_arrives_all_the_same(
    world: World, tmp_path: Path, value: Any, hint: dict[str, Any]
) -> None:
    source = source_of([{"id": 1, "at": day(1), "value": value}], columns={"value": hint})
    backfill, plan = world.seeded(source, 1)
    world.run(backfill, plan)
    load_plainly(world, source, tmp_path)
    assert_as_plain(world, "events", ["id", "value"], "id")


def test_a_text_with_a_nul_arrives_at_postgres_without_it(pg_target: Target, settings: Settings) -> None:
    """As the newest dlt would load it; older ones fail."""
    world = World(pg_target, settings)
    texts = [{"id": 1, "at": day(1), "text": "a\0b"}, {"id": 2, "at": day(1), "text": "\0"}]
    backfill, plan = world.seeded(source_of(texts), 1)
    world.run(backfill, plan)
    assert rows(world, pg_target.dataset_name, "events", ["id", "text"], "id") == [[1, "ab"], [2, ""]]


def test_what_arrow_cannot_hold_arrives_from_worker_processes_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NORMALIZE__WORKERS", "2")
    monkeypatch.setenv("NORMALIZE__DATA_WRITER__FILE_MAX_ITEMS", "1")
    monkeypatch.setenv("EXTRACT__DATA_WRITER__FILE_MAX_ITEMS", "1")
    exact = [{"id": number, "at": day(1), "value": Decimal("1.12345678901234")} for number in (1, 2)]
    backfill, plan = world.seeded(source_of(exact, columns={"value": {"data_type": "decimal"}}), 1)
    world.run(backfill, plan)
    assert world.query("SELECT count(*) FROM @events") == [(2,)]


def test_arrow_tables_arrive_whatever_the_time_zone_of_the_server(
    pg_target: Target, settings: Settings
) -> None:
    @dlt.source(name="web_events")
    def tables() -> Any:
        @dlt.resource(name="events")
        def events(at: Any = dlt.sources.incremental("at", initial_value=EPOCH)) -> Any:
            yield pa.table({"id": [1, 2], **ARROW})

        return events

    with pg_target.connect(5) as session:
        database = pg_target.credentials.rpartition("/")[2]
        session.execute(f"ALTER DATABASE {database} SET timezone = 'America/New_York'")
    world = World(pg_target, settings)
    backfill, plan = world.seeded(tables, 1)
    world.run(backfill, plan)
    first, second = rows(world, pg_target.dataset_name, "events", ["id", *ARROW], "id")
    assert first == [
        1,
        day(1),
        datetime(2026, 1, 1, 12, tzinfo=UTC),
        [1, None],
        {"a": "ü"},
        "x",
        "",
        b"\xff",
        b"ab",
        1,
        0.5,
        Decimal("1.23"),
        time(1),
        date(2026, 1, 1),
    ]
    assert second == [2, day(1), *[None] * (len(ARROW) - 1)]

"""Stored schemas that say less than the tables hold: nothing is cast, and no nested row loses its parent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import dlt
import pytest
from dlt.destinations import job_client_impl

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.settings import Settings
from tests.support.sources import day, source_of
from tests.support.worlds import World

PRICES = "SELECT id, price, price__v_double FROM @events WHERE id < 100 ORDER BY id"
ORPHANS = (
    "SELECT count(*) FROM @events__tags t"
    " WHERE NOT EXISTS (SELECT 1 FROM @events e WHERE e._dlt_id = t._dlt_parent_id)"
)


@pytest.fixture
def world(target: Target, settings: Settings) -> Iterator[World]:
    world = World(target, settings)
    yield world
    assert world.leftovers() == []


@contextmanager
def slow_clock(minutes: int) -> Iterator[None]:
    """dlt stamps what it stores with the clock of a machine that is so many minutes behind."""
    # Older versions of dlt ask pendulum for the time.
    name = "datetime" if hasattr(job_client_impl, "datetime") else "pendulum"
    real: Any = getattr(job_client_impl, name)

    class Late:
        def __getattr__(self, attribute: str) -> Any:
            return getattr(real, attribute)

        def now(self, *zone: Any) -> Any:
            return real.now(*zone) - timedelta(minutes=minutes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_client_impl, name, Late())
        yield


@pytest.fixture
def forward(world: World, tmp_path: Path) -> Callable[..., None]:
    """A pipeline that loads the same table forward, and whose schema knows only what it has seen itself."""

    def load(**columns: Any) -> None:
        @dlt.source(name="web_events")
        def source() -> Any:
            @dlt.resource(name="events", write_disposition="merge", primary_key="id")
            def events() -> Iterator[dict[str, Any]]:
                yield {"id": 100, "at": day(20), **columns}

            return events

        with world.target.connect(5) as session:
            native = session.native if world.target.dialect.single_process else None
            dlt.pipeline(
                "forward",
                pipelines_dir=str(tmp_path / "pipelines"),
                destination=world.target.dialect.destination(world.target, native, plain=True),
                dataset_name=world.target.dataset_name,
            ).run(source())

    return load


def test_a_schema_stored_by_a_slow_clock_is_still_the_newest(world: World) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 1, "at": day(1), "first": 1},
        {"id": 2, "at": day(2), "price": 7, "tags": [{"v": 1}]},
        {"id": 3, "at": day(3), "price": 1.5},
    ]
    backfill, plan = world.seeded(source_of(rows))
    world.run(backfill, plan, 1)
    with slow_clock(5):
        world.run(backfill, plan, 2)
    world.run(backfill, plan, 3)
    assert world.query(PRICES) == [(1, None, None), (2, 7, None), (3, None, 1.5)]
    versions = world.query("SELECT version, version_hash FROM @_dlt_version ORDER BY inserted_at")
    assert [number for number, _ in versions] == sorted({number for number, _ in versions})
    recorded = world.query("SELECT schema_version_hash FROM @_dlt_loads ORDER BY load_id")
    assert [version for (version,) in recorded] == [version for _, version in versions]
    # A version that replaces one with nested rows finds them.
    with world.target.connect(5) as session:
        Ledger(session, world.target).restate(plan.backfill_id, "000001")
    del rows[1]["tags"]
    world.run(backfill, plan, 2)
    assert world.query(ORPHANS) == [(0,)]
    assert world.query("SELECT count(*) FROM @events__tags") == [(0,)]


def test_a_column_that_the_newest_schema_does_not_know_keeps_its_type(
    world: World, forward: Callable[..., None]
) -> None:
    """dlt would take 1.5 for the type of a new column, find the old one of whole numbers, and store 2."""
    forward()
    rows = [{"id": 1, "at": day(1), "price": 7}, {"id": 2, "at": day(2), "price": 1.5}]
    backfill, plan = world.seeded(source_of(rows), days=2)
    world.run(backfill, plan, 1)
    forward(extra="x")
    world.run(backfill, plan, 2)
    assert world.query(PRICES) == [(1, 7, None), (2, None, 1.5)]
    # The schema stored now knows both, so that the next attempt need not find out again.
    [(stored,)] = world.query("SELECT schema FROM @_dlt_version ORDER BY inserted_at DESC LIMIT 1")
    assert '"price__v_double"' in stored
    assert '"extra"' in stored


def test_nested_rows_that_the_newest_schema_does_not_know_leave_with_their_parents(
    world: World, forward: Callable[..., None]
) -> None:
    forward()
    rows = [
        {"id": 1, "at": day(1), "tags": [{"v": "old"}, {"v": "older"}]},
        {"id": 1, "at": day(2), "name": "new"},
    ]
    backfill, plan = world.seeded(source_of(rows, write_disposition="merge", primary_key="id"), days=2)
    world.run(backfill, plan, 1)
    forward(extra="x")
    world.run(backfill, plan, 2)
    assert world.query("SELECT id, name FROM @events WHERE id = 1") == [(1, "new")]
    assert world.query("SELECT count(*) FROM @events__tags") == [(0,)]


def test_two_sources_that_share_a_table_share_its_types(world: World) -> None:
    for name, price in (("one", 7), ("two", 1.5)):
        number = 1 if name == "one" else 2
        rows = [{"id": number, "at": day(1), "price": price}]
        backfill, plan = world.seeded(source_of(rows, name=name), days=1)
        world.run(backfill, plan)
    assert world.query(PRICES) == [(1, 7, None), (2, None, 1.5)]


def test_a_table_of_the_same_prefix_that_is_nobodys_nested_one_is_left_alone(world: World) -> None:
    rows = [{"id": 1, "at": day(1)}]
    backfill, plan = world.seeded(source_of(rows, write_disposition="merge", primary_key="id"), days=1)
    world.query("CREATE TABLE @events__notes (note INTEGER)")
    world.query("INSERT INTO @events__notes VALUES (1)")
    world.run(backfill, plan)
    assert world.query("SELECT note FROM @events__notes") == [(1,)]


def test_each_source_in_a_dataset_of_its_own_asks_for_no_second_extraction(world: World) -> None:
    reads: list[int] = []

    def rows() -> Iterator[dict[str, Any]]:
        reads.append(1)
        yield {
            "id": 1,
            "at": day(1),
            "price": 1.5,
            "size": 3,
            "name": "a",
            "sure": True,
            "data": b"1",
            "when": day(1).date(),
            "clock": time(12, 30),
            "exact": Decimal("1.25"),
            "short": 7,
            "tree": {"a": [1]},
            "wei": 10**15,
            "naive": datetime(2024, 1, 1, 12),  # noqa: DTZ001
        }

    columns = {
        "short": {"data_type": "bigint", "precision": 16},
        "tree": {"data_type": "json"},
        "wei": {"data_type": "wei"},
    }
    backfill, plan = world.seeded(source_of(rows, columns=columns), days=2)
    for target in (world.target, replace(world.target, dataset_name="other")):
        backfill = replace(backfill, target=target)
        backfill.seed(plan)
        world.run(backfill, plan)
    assert len(reads) == 2 * len(plan.chunks)

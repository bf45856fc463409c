"""Keys, deduplication and schema contracts, as dlt has them, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.exceptions import AttemptError
from tests.support.sources import day, source_of
from tests.support.worlds import World


@pytest.fixture
def world(target: Target, settings: Settings) -> Iterator[World]:
    world = World(target, settings)
    yield world
    assert world.leftovers() == []


def test_a_merge_key_replaces_all_rows_that_share_it(world: World) -> None:
    """Day 2 brings the shop's list anew; the rows of day 1 that are not in it any more go."""
    rows: list[dict[str, Any]] = [
        *({"id": number, "shop": "a", "at": day(1)} for number in (1, 2, 3)),
        {"id": 9, "shop": "b", "at": day(1)},
        {"id": 4, "shop": "a", "at": day(2)},
    ]
    backfill, plan = world.seeded(source_of(rows, write_disposition="merge", merge_key="shop"), days=2)
    world.run(backfill, plan)
    assert world.query("SELECT id, shop FROM @events ORDER BY id") == [(4, "a"), (9, "b")]


@pytest.mark.parametrize(("order", "kept"), [("desc", 30), ("asc", 10)])
def test_of_rows_of_one_key_in_one_chunk_the_sort_decides(world: World, order: str, kept: int) -> None:
    rows = [{"id": 1, "at": day(1, hour), "rank": hour * 10} for hour in (2, 3, 1)]
    source = source_of(
        rows, write_disposition="merge", primary_key="id", columns={"rank": {"dedup_sort": order}}
    )
    backfill, plan = world.seeded(source, days=1)
    world.run(backfill, plan)
    assert world.query("SELECT id, rank FROM @events") == [(1, kept)]


CONTRACT = [{"id": 1, "at": day(1)}, {"id": 2, "at": day(2)}, {"id": 3, "at": day(2, 13), "fresh": "x"}]


@pytest.mark.parametrize(
    ("mode", "rows"),
    [
        ("evolve", [(1, None), (2, None), (3, "x")]),
        ("discard_row", [(1,), (2,)]),
        ("discard_value", [(1,), (2,), (3,)]),
    ],
)
def test_a_contract_holds_for_columns_that_a_later_chunk_brings(
    world: World, mode: str, rows: list[tuple[Any, ...]]
) -> None:
    backfill, plan = world.seeded(source_of(CONTRACT, schema_contract={"columns": mode}), days=2)
    world.run(backfill, plan)
    columns = "id, fresh" if mode == "evolve" else "id"
    assert world.query(f"SELECT {columns} FROM @events ORDER BY id") == rows
    with world.target.connect(5) as session:
        known = world.target.dialect.table_columns(session, world.target.dataset_name, "events")
    assert ("fresh" in known) is (mode == "evolve")


def test_a_frozen_table_fails_the_chunk_and_keeps_what_was_there(world: World) -> None:
    backfill, plan = world.seeded(source_of(CONTRACT, schema_contract={"columns": "freeze"}), days=2)
    world.run(backfill, plan, 1)
    with pytest.raises(AttemptError, match="fresh"):
        world.run(backfill, plan, 2)
    assert world.query("SELECT id FROM @events") == [(1,)]
    assert [world.row(plan, number).status for number in (1, 2)] == [
        ChunkStatus.COMPLETED,
        ChunkStatus.FAILED,
    ]

"""One attempt at a time: what is published, what replaces what, and what a lost claim leaves behind."""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import dlt
import pytest

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.records import ChunkStatus, Claim
from airflow_provider_backfill.engine.runner import this_claimant
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.stage import stage_prefix, working_directory
from airflow_provider_backfill.engine.window import ChunkSize
from airflow_provider_backfill.exceptions import (
    AttemptError,
    ClaimLostError,
    RestateError,
)
from tests.support.sources import EPOCH, day, events, new_columns, source_of, two_types
from tests.support.worlds import IDS, ITEMS, World, steal


@pytest.fixture
def world(target: Target, settings: Settings) -> Iterator[World]:
    world = World(target, settings)
    yield world
    assert world.leftovers() == []


def test_append_with_nested_rows_publishes_each_chunk_once(world: World) -> None:
    backfill, plan = world.seeded(source_of(events()))
    outcomes = world.run(backfill, plan)
    assert [(outcome.loaded, outcome.records) for outcome in outcomes] == [(True, 3)] * 3
    assert world.query(IDS) == [(1, 10), (2, 20), (3, 30)]
    assert world.query(ITEMS) == [(1, 2), (2, 2), (3, 2)]
    assert world.query("SELECT count(*) FROM @events__items") == [(6,)]
    loads = world.query("SELECT load_id, status, schema_name FROM @_dlt_loads ORDER BY inserted_at")
    assert [(row[1], row[2]) for row in loads] == [(0, "web_events")] * 3
    assert [world.row(plan, n).load_ids for n in (1, 2, 3)] == [row[0] for row in loads]
    again = world.run(backfill, plan)
    assert [outcome.loaded for outcome in again] == [False] * 3
    assert world.query(IDS) == [(1, 10), (2, 20), (3, 30)]


def test_its_log_says_what_each_step_came_to(world: World, caplog: pytest.LogCaptureFixture) -> None:
    backfill, plan = world.seeded(source_of(events()))
    with caplog.at_level("INFO", logger="airflow_provider_backfill"):
        world.run(backfill, plan)
    said = [re.sub(r" in \d+\.\d s$", "", text) for text in caplog.messages if text.startswith("chunk 2")]
    assert said == [
        "chunk 2 extract: events 1 rows",
        "chunk 2 normalize: events 1 rows, events__items 2 rows",
        "chunk 2 load: events 1 rows, events__items 2 rows",
    ]


def test_a_chunk_without_rows_completes_with_none(world: World) -> None:
    rows = [row for row in events() if row["id"] != 2]
    backfill, plan = world.seeded(source_of(rows))
    assert [outcome.records for outcome in world.run(backfill, plan)] == [3, 0, 3]
    assert world.row(plan, 2).status is ChunkStatus.COMPLETED
    assert world.query("SELECT count(*) FROM @_dlt_loads") == [(2,)]


@pytest.mark.parametrize("strategy", ["delete-insert", "upsert"])
def test_merge_updates_rows_and_their_nested_rows(world: World, strategy: str) -> None:
    rows = events(3)
    # Day 2 brings a new version of row 1 with one item, day 3 deletes row 2.
    rows[1:1] = [{**rows[0], "at": day(2, 1), "order": 11, "items": [{"sku": "new"}]}]
    rows.append({**rows[2], "at": day(3, 1), "gone": True})
    source = source_of(
        rows,
        write_disposition={"disposition": "merge", "strategy": strategy},
        primary_key="id",
        columns={"gone": {"data_type": "bool", "hard_delete": True}},
    )
    backfill, plan = world.seeded(source)
    world.run(backfill, plan)
    assert world.query(IDS) == [(1, 11), (3, 30)]
    assert world.query(ITEMS) == [(1, 1), (3, 2)]
    assert world.query("SELECT count(*) FROM @events__items") == [(3,)]


@pytest.mark.parametrize("disposition", ["append", "merge"])
def test_a_restated_chunk_replaces_its_own_rows_and_no_others(world: World, disposition: str) -> None:
    rows = events()
    source = source_of(lambda: rows, write_disposition=disposition, primary_key="id")
    backfill, plan = world.seeded(source)
    world.run(backfill, plan)
    rows[1] = {**rows[1], "id": 22, "order": 222, "items": [{"sku": "redone"}]}
    with world.target.connect(5) as session:
        Ledger(session, world.target).restate(plan.backfill_id, "000001")
    assert world.query(IDS) == [(1, 10), (2, 20), (3, 30)]  # the old version stays until the new one is there
    [outcome] = world.run(backfill, plan, 2)
    assert (outcome.loaded, outcome.attempt) == (True, 2)
    assert world.query(IDS) == [(1, 10), (3, 30), (22, 222)]
    assert world.query("SELECT count(*) FROM @events__items") == [(5,)]
    assert world.query(ITEMS) == [(1, 2), (3, 2), (22, 1)]


def test_a_restated_chunk_that_has_no_rows_any_more_is_emptied(world: World) -> None:
    rows = events()
    backfill, plan = world.seeded(source_of(lambda: rows))
    world.run(backfill, plan)
    del rows[1]
    with world.target.connect(5) as session:
        Ledger(session, world.target).restate(plan.backfill_id, "000001")
    world.run(backfill, plan, 2)
    assert world.query(IDS) == [(1, 10), (3, 30)]
    assert world.query("SELECT count(*) FROM @events__items") == [(4,)]


def test_a_source_error_fails_the_row_with_one_line_and_a_retry_resumes(world: World) -> None:
    broken = True

    def rows() -> Iterator[dict[str, Any]]:
        yield events()[0]
        if broken:
            raise RuntimeError("the API said\n503")

    backfill, plan = world.seeded(source_of(rows))
    with pytest.raises(AttemptError, match="RuntimeError: the API said 503"):
        world.run(backfill, plan, 1)
    row = world.row(plan)
    assert (row.status, row.error, row.attempt) == (ChunkStatus.FAILED, "RuntimeError: the API said 503", 1)
    assert world.query("SELECT count(*) FROM @_dlt_backfills WHERE status = 'pending'") == [(2,)]
    assert not world.target_has("events")
    broken = False
    [outcome] = world.run(backfill, plan, 1)
    assert (outcome.attempt, world.row(plan).run_id) == (2, row.run_id)
    assert world.query(IDS) == [(1, 10)]


def test_an_attempt_whose_claim_was_taken_publishes_nothing(world: World) -> None:
    thief: list[Claim] = []

    def rows() -> Iterator[dict[str, Any]]:
        yield from events()
        if not thief:
            thief.append(steal(world, plan))

    backfill, plan = world.seeded(source_of(rows))
    with pytest.raises(ClaimLostError):
        world.run(backfill, plan, 1)
    row = world.row(plan)
    assert (row.status, row.claim_token, row.attempt) == (ChunkStatus.RUNNING, thief[0].token, 2)
    assert not world.target_has("events") or world.query("SELECT count(*) FROM @events") == [(0,)]
    backfill.runner.attempt(thief[0], "web_events")
    assert world.query(IDS) == [(1, 10)]
    assert world.row(plan).claim_token == thief[0].token


def test_an_attempt_stops_soon_after_its_claim_was_taken(world: World) -> None:
    """The source would go on for ever: the heartbeat's news must reach it between two pages."""
    drawn: list[int] = []

    def rows() -> Iterator[dict[str, Any]]:
        for number in itertools.count():
            if number == 10:
                steal(world, plan)
            drawn.append(number)
            yield {**events()[0], "id": number}
            time.sleep(0.001)

    backfill, plan = world.seeded(source_of(rows))
    with pytest.raises(ClaimLostError):
        world.run(backfill, plan, 1)
    assert len(drawn) > 10
    assert world.row(plan).attempt == 2
    assert not world.target_has("events")


def meanwhile(world: World, plan: BackfillPlan, reference: str, number: int) -> None:
    """Run a chunk of the plan in another process: dlt keeps one pipeline a process."""
    runner = replace(world.backfill(source_of([])).runner, source=SourceSpec(reference=reference))
    arguments = (plan.backfill_id, f"{number - 1:06d}", this_claimant())
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(runner.run_chunk, *arguments).result().loaded


def test_columns_that_another_chunk_added_meanwhile_are_kept(world: World) -> None:
    """Chunk 2 loads, with a column of its own, while chunk 1 is being extracted on an empty dataset."""
    done: list[bool] = []

    def rows() -> Iterator[dict[str, Any]]:
        yield from new_columns()
        if not done:
            done.append(True)
            meanwhile(world, plan, "tests.support.sources:new_columns_source", 2)

    backfill, plan = world.seeded(source_of(rows))
    world.run(backfill, plan, 1)
    assert world.query("SELECT id, first, second FROM @events ORDER BY id") == [
        (1, "a", None),
        (2, None, "b"),
    ]
    stored = world.query("SELECT schema FROM @_dlt_version ORDER BY inserted_at DESC LIMIT 1")[0][0]
    assert '"first"' in stored
    assert '"second"' in stored


def test_a_column_that_became_another_type_meanwhile_is_extracted_again(world: World) -> None:
    """Chunk 2 makes the column a text while chunk 1, whose value is a number, is being extracted."""
    reads: list[int] = []

    def rows() -> Iterator[dict[str, Any]]:
        yield from two_types()
        reads.append(1)
        if len(reads) == 1:
            meanwhile(world, plan, "tests.support.sources:two_types_source", 2)

    backfill, plan = world.seeded(source_of(rows))
    [outcome] = world.run(backfill, plan, 1)
    assert (outcome.attempt, len(reads)) == (1, 2)
    assert world.query("SELECT id, size FROM @events ORDER BY id") == [(1, "7"), (2, "large")]


def test_the_forward_pipeline_keeps_its_bookmark(world: World, tmp_path: Any) -> None:
    rows = events(5)
    source = source_of(lambda: rows)

    def forward(pipelines: str) -> Any:
        with world.target.connect(5) as session:
            native = session.native if world.target.dialect.single_process else None
            pipeline = dlt.pipeline(
                "forward",
                pipelines_dir=str(tmp_path / pipelines),
                destination=world.target.dialect.destination(world.target, native, plain=True),
                dataset_name=world.target.dataset_name,
            )
            return pipeline.run(source())

    forward("a")
    before = world.query("SELECT * FROM @_dlt_pipeline_state ORDER BY version")
    assert world.query("SELECT count(*) FROM @events") == [(5,)]
    world.query("DELETE FROM @events__items")
    world.query("DELETE FROM @events")
    backfill, plan = world.seeded(source)
    world.run(backfill, plan)
    assert world.query(IDS) == [(1, 10), (2, 20), (3, 30)]
    assert world.query("SELECT * FROM @_dlt_pipeline_state ORDER BY version") == before
    rows.append(events(6)[5])
    forward("b")  # a fresh machine: the bookmark comes from the dataset
    assert world.query(IDS) == [(1, 10), (2, 20), (3, 30), (6, 60)]


def test_what_a_killed_attempt_left_is_dropped_by_the_next_plan(world: World) -> None:
    backfill, plan = world.seeded(source_of(events()))
    dead = stage_prefix(world.target, plan.source_name) + "00112233445566ff"
    with world.target.connect(5) as session:
        world.target.dialect.create_schema(session, dead)
    os.makedirs(working_directory(world.target, dead, world.settings.work_root))
    with world.target.connect(5) as session:
        ledger = Ledger(session, world.target)
        live = ledger.claim(ledger.chunk(plan.backfill_id, "000000"), this_claimant(), 60)
    alive = stage_prefix(world.target, plan.source_name) + live.token
    with world.target.connect(5) as session:
        world.target.dialect.create_schema(session, alive)
    backfill.seed(plan)
    assert world.leftovers() == [alive]
    with world.target.connect(5) as session:
        Ledger(session, world.target).fail(live, "killed")
    backfill.seed(plan)


def test_a_dead_stage_that_cannot_be_dropped_keeps_nobody_from_planning(
    pg_target: Target, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be another role's, or somebody may read it, such as a dump."""
    world = World(pg_target, settings)
    backfill, plan = world.seeded(source_of(events()))
    stage = stage_prefix(pg_target, "web_events") + "0" * 16
    world.query(f'CREATE SCHEMA "{stage}"')
    world.query(f'CREATE TABLE "{stage}".events (id INTEGER)')
    with pg_target.connect(5) as reader, reader.transaction():
        reader.execute(f'SELECT * FROM "{stage}".events')
        backfill.seed(plan)
        assert world.run(backfill, plan, 1)[0].loaded
    assert f"dead stage {stage} could not be dropped: " in caplog.text
    backfill.seed(plan)
    assert world.leftovers() == []


def test_a_version_that_is_being_replaced_still_stands_in_the_way(world: World) -> None:
    """Its rows are there until the next one is published: another backfill would double them."""
    backfill, plan = world.seeded(source_of(events()))
    world.run(backfill, plan)
    other = replace(backfill, chunk=ChunkSize.parse("36h"))
    with world.target.connect(5) as session:
        Ledger(session, world.target).restate(plan.backfill_id, "000001")
    again = other.plan()
    assert [row.covered_by for row in other.seed(again)] == [plan.backfill_id] * 2
    world.run(backfill, plan, 2)
    world.run(other, again)
    assert world.query(IDS) == [(1, 10), (2, 20), (3, 30)]


def test_rows_whose_load_is_not_known_are_not_restated(world: World) -> None:
    """Another tool completed the chunk: its rows could not be told from others."""
    backfill, plan = world.seeded(source_of(events()))
    world.run(backfill, plan)
    world.query("UPDATE @_dlt_backfills SET load_ids = NULL")
    with world.target.connect(5) as session, pytest.raises(RestateError):
        Ledger(session, world.target).restate(plan.backfill_id, "000001")


def test_rows_that_a_table_does_not_take_fail_the_attempt_as_a_whole(world: World) -> None:
    backfill, plan = world.seeded(source_of([{**row, "word": "same"} for row in events()]))
    world.run(backfill, plan, 1)
    world.query("CREATE UNIQUE INDEX one_word ON @events (word)")
    with pytest.raises(AttemptError, match=r"(?i)duplicate key"):
        world.run(backfill, plan, 2)
    row = world.row(plan, 2)
    assert (row.status, row.lease_left) == ("failed", None)
    assert "uplicate key" in str(row.error)
    assert world.query(IDS) == [(1, 10)]
    assert world.query("SELECT count(*) FROM @_dlt_loads") == [(1,)]
    assert world.query("SELECT count(*) FROM @events__items") == [(2,)]
    world.query("DROP INDEX @one_word")
    world.run(backfill, plan, 2)
    assert world.query(IDS) == [(1, 10), (2, 20)]


def test_an_attempt_without_its_ledger_row_publishes_nothing(world: World) -> None:
    """A write to the ledger is no formality: here the table goes while the source is read."""

    def rows() -> Iterator[dict[str, Any]]:
        yield from events()
        world.query("DROP TABLE @_dlt_backfills")

    backfill, plan = world.seeded(source_of(rows))
    with pytest.raises(AttemptError, match="_dlt_backfills"):
        world.run(backfill, plan, 1)
    assert world.query("SELECT count(*) FROM @events") == [(0,)]
    assert world.query("SELECT count(*) FROM @_dlt_loads") == [(0,)]


def test_selected_resources_are_the_only_ones_loaded(world: World) -> None:
    @dlt.source(name="web_events")
    def two() -> Any:
        @dlt.resource(name="events")
        def first(at: Any = dlt.sources.incremental("at", initial_value=EPOCH)) -> Any:
            yield events(1)

        @dlt.resource(name="unbounded", write_disposition="replace")
        def second() -> Any:
            yield {"id": 1}

        return first, second

    backfill, plan = world.seeded(two, 1, resources=("events",))
    world.run(backfill, plan)
    assert plan.source == "web_events:events"
    assert (world.row(plan).source_section, world.row(plan).resource_name) == ("web_events", "events")
    assert world.query(IDS) == [(1, 10)]
    assert not world.target_has("unbounded")


def test_a_dataset_name_that_dlt_writes_otherwise_is_one_dataset(target: Target, settings: Settings) -> None:
    world = World(replace(target, dataset_name="web_raw"), settings)
    backfill, plan = world.seeded(source_of(events()), 1)
    world.run(backfill, plan)
    with world.target.connect(5) as session:
        assert world.target.dialect.schemas(session, "web") == ["web_raw"]

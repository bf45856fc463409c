"""Assertions about the rows of a chunk: what fails, what is set aside, what is only said."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import dlt
import pyarrow
import pytest

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.gates import parse_assertions
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.window import ChunkSize
from airflow_provider_backfill.exceptions import AssertionFailedError, AttemptError, GateError
from tests.support.sources import EPOCH, day, events, source_of
from tests.support.worlds import IDS, ITEMS, World

REJECTED = "SELECT assertion_type, violation, row_json FROM @_dlt_rejected ORDER BY row_json"


@pytest.fixture
def world(target: Target, settings: Settings) -> Iterator[World]:
    world = World(target, settings)
    yield world
    assert world.leftovers() == []


def positive(row: dict[str, Any]) -> bool:
    return row["order"] > 0


HERE = "tests.integration.test_gates"


def one_day() -> list[dict[str, Any]]:
    """Six events at noon of the first day: 2 is a double of 1, 3 has no amount, 4 a state of its own."""
    rows = [{**row, "at": day(1), "amount": 1.5, "state": "open"} for row in events()]
    rows[1]["id"] = 1
    rows[2]["amount"] = None
    rows[3]["state"] = "lost"
    rows[4]["order"] = -50
    return rows


EACH: list[tuple[dict[str, Any], str]] = [
    ({"min_rows_per_load": 7}, "6 rows"),
    ({"max_rows_per_load": 5}, "6 rows"),
    ({"unique_columns": ["id"]}, "1 rows do not pass"),
    ({"unique_columns": ["id", "state"]}, "1 rows do not pass"),
    ({"not_null_columns": ["id", "Amount"]}, "1 rows do not pass"),
    ({"accepted_values": {"state": ["open", "it's 100% \\ shut"]}}, "1 rows do not pass"),
    ({"accepted_values": {"order": [10, 20, 30]}}, "3 rows do not pass"),
    ({"sql": "\"order\" > 0 AND state LIKE 'o%' -- no"}, "2 rows do not pass"),
    ({"python": f"{HERE}:positive"}, "1 rows do not pass"),
]
PASSING = [
    {"min_rows_per_load": 6},
    {"max_rows_per_load": 6},
    {"unique_columns": ["order"]},
    {"unique_columns": ["id", "order"]},
    {"not_null_columns": ["id"]},
    {"accepted_values": {"amount": [1.5]}},
    {"accepted_values": {"state": ["open", "lost"]}},
    {"cursor_within_chunk": True},
    {"cursor_within_chunk": "at"},
    {"sql": "amount > 0"},
]


@pytest.mark.parametrize(("given", "fault"), EACH, ids=[next(iter(given)) for given, _ in EACH])
def test_one_that_fails_publishes_nothing(world: World, given: dict[str, Any], fault: str) -> None:
    backfill, plan = world.seeded(source_of(one_day()), 1, assertions=parse_assertions([given]))
    [assertion] = parse_assertions([given])["*"]
    with pytest.raises(AssertionFailedError) as refused:
        world.run(backfill, plan, 1)
    told = f"events: {assertion} does not hold: {fault}"
    assert told in str(refused.value)
    row = world.row(plan)
    assert row.status is ChunkStatus.FAILED
    assert told in (row.error or "")
    assert not world.target_has("events")
    assert not world.target_has("_dlt_rejected")


def test_those_that_hold_say_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    backfill, plan = world.seeded(source_of(one_day()), 1, assertions=parse_assertions(PASSING))
    [outcome] = world.run(backfill, plan)
    assert (outcome.records, outcome.rejected, outcome.warnings) == (18, 0, 0)
    assert [record for record in caplog.records if record.levelname != "INFO"] == []
    assert not world.target_has("_dlt_rejected")


def quarantined(*given: dict[str, Any]) -> Any:
    return parse_assertions([{**one, "on_failure": "quarantine"} for one in given])


def test_rows_in_quarantine_take_their_nested_rows_along(world: World) -> None:
    made = quarantined({"unique_columns": "id"}, {"not_null_columns": ["amount", "state"]})
    backfill, plan = world.seeded(source_of(one_day()), 1, assertions=made)
    [outcome] = world.run(backfill, plan)
    assert (outcome.records, outcome.rejected) == (12, 2)
    assert world.query(IDS) == [(1, 10), (4, 40), (5, -50), (6, 60)]
    assert world.query(ITEMS) == [(1, 2), (4, 2), (5, 2), (6, 2)]
    assert world.query("SELECT count(*) FROM @events__items") == [(8,)]
    assert world.row(plan).records_loaded == 12
    double, without = world.query(REJECTED)
    assert double[:2] == ("unique_columns", "a row before it is the same: id is 1")
    assert without[:2] == ("not_null_columns", "amount is null")
    row = json.loads(without[2])
    assert (row["id"], row["order"], row["amount"], row["state"]) == (3, 30, None, "open")
    assert [(item["sku"], item["_dlt_list_idx"]) for item in row["events__items"]] == [("3-1", 0), ("3-2", 1)]
    columns = "pipeline_name, source_section, resource_name, run_id, assertion_params"
    assert world.query(f"SELECT DISTINCT {columns} FROM @_dlt_rejected ORDER BY assertion_params") == [
        ("web_events", "web_events", "events", plan.chunks[0].run_id, parameters)
        for parameters in (
            '{"not_null_columns": ["amount", "state"]}',
            '{"unique_columns": ["id"]}',
        )
    ]
    assert world.query("SELECT count(*) FROM @_dlt_rejected WHERE rejected_at IS NULL") == [(0,)]


def test_the_other_assertions_look_at_what_is_left(world: World) -> None:
    """A row that is rejected fails nothing else, and does not count as a row of the chunk."""
    made = [{"unique_columns": "id", "on_failure": "quarantine"}, {"unique_columns": "id"}]
    backfill, plan = world.seeded(
        source_of(one_day()), 1, assertions=parse_assertions([*made, {"min_rows_per_load": 6}])
    )
    with pytest.raises(AssertionFailedError, match=r"min_rows_per_load\(6\) does not hold: 5 rows; nothing"):
        world.run(backfill, plan)
    assert not world.target_has("_dlt_rejected")


def test_all_that_fail_are_named_and_a_warning_is_counted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    warns = {"not_null_columns": "amount", "on_failure": "warn"}
    made = parse_assertions([warns, {"min_rows_per_load": 7, "on_failure": "warn"}])
    backfill, plan = world.seeded(source_of(one_day()), 1, assertions=made)
    [outcome] = world.run(backfill, plan)
    assert (outcome.records, outcome.rejected, outcome.warnings) == (18, 0, 2)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"chunk 1: events: {told}; published all the same"
        for told in (
            'not_null_columns(["amount"]) does not hold: 1 rows do not pass',
            "min_rows_per_load(7) does not hold: 6 rows",
        )
    ]


def deep() -> list[dict[str, Any]]:
    return [
        {"id": number, "at": day(1), "boxes": [{"items": [{"n": n} for n in range(number)]}, {"items": []}]}
        for number in (1, 2)
    ]


def test_rows_nested_in_nested_rows_go_along(world: World) -> None:
    backfill, plan = world.seeded(source_of(deep()), 1, assertions=quarantined({"sql": "id < 2"}))
    [outcome] = world.run(backfill, plan)
    assert (outcome.records, outcome.rejected) == (4, 1)
    assert world.query("SELECT count(*) FROM @events__boxes__items") == [(1,)]
    [(_, violation, text)] = world.query(REJECTED)
    assert violation == "not id < 2"
    boxes = json.loads(text)["events__boxes"]
    assert [[item["n"] for item in box["events__boxes__items"]] for box in boxes] == [[0, 1], []]


def test_a_merge_leaves_the_version_that_stands_where_the_new_one_is_rejected(world: World) -> None:
    rows = events(2)
    rows.append({**rows[0], "at": day(2), "order": -1, "items": []})
    source = source_of(rows, write_disposition="merge", primary_key="id")
    backfill, plan = world.seeded(source, 2, assertions=quarantined({"python": f"{HERE}:positive"}))
    outcomes = world.run(backfill, plan)
    assert [(outcome.records, outcome.rejected) for outcome in outcomes] == [(3, 0), (3, 1)]
    assert world.query(IDS) == [(1, 10), (2, 20)]
    assert world.query(ITEMS) == [(1, 2), (2, 2)]


def test_a_chunk_that_is_loaded_again_rejects_anew(world: World) -> None:
    rows = events(2)
    made = quarantined({"sql": '"order" <> 10 AND "order" <> 20'})
    backfill, plan = world.seeded(source_of(lambda: rows), 2, assertions=made)
    world.run(backfill, plan)
    assert world.query(IDS) == []
    assert [json.loads(text)["id"] for _, _, text in world.query(REJECTED)] == [1, 2]
    for order, left in ((20, [1, 2]), (5, [1])):
        rows[1]["order"] = order
        with world.target.connect(5) as session:
            backfill.runner.restate(session, plan.backfill_id, ["000001"])
        world.run(backfill, plan, 2)
        assert [json.loads(text)["id"] for _, _, text in world.query(REJECTED)] == left
    assert world.query(IDS) == [(2, 5)]


def test_what_the_chunks_inside_have_rejected_is_replaced_too(world: World) -> None:
    rows = events(2)
    made = quarantined({"sql": '"order" > 10'})
    backfill, plan = world.seeded(source_of(lambda: rows), 2, assertions=made)
    world.run(backfill, plan)
    assert [json.loads(text)["id"] for _, _, text in world.query(REJECTED)] == [1]
    rows[0]["order"], rows[1]["order"] = 11, 2
    longer = world.backfill(backfill.source.reference, 3, assertions=made)
    wide = replace(longer, chunk=ChunkSize.parse("3d"), overlap="reload")
    wide.seed(plan := wide.plan())
    assert [outcome.rejected for outcome in world.run(wide, plan)] == [1]
    assert world.query(IDS) == [(1, 11)]
    assert [json.loads(text)["id"] for _, _, text in world.query(REJECTED)] == [2]


def test_a_chunk_without_rows_is_counted_too(world: World) -> None:
    made = parse_assertions([{"not_null_columns": "id"}, {"min_rows_per_load": 1}])
    backfill, plan = world.seeded(source_of([]), 1, assertions=made)
    with pytest.raises(AssertionFailedError, match=r"min_rows_per_load\(1\) does not hold: 0 rows"):
        world.run(backfill, plan)
    assert world.row(plan).status is ChunkStatus.FAILED


def test_a_failed_attempt_rejects_nothing(world: World) -> None:
    """The rejected rows are published with the others, or neither are."""
    backfill, plan = world.seeded(source_of(events(1)), 1, assertions=quarantined({"sql": "id < 0"}))
    world.query("CREATE TABLE @_dlt_rejected (run_id TEXT, source_section TEXT)")
    with pytest.raises(AttemptError):
        world.run(backfill, plan)
    assert world.row(plan).status is ChunkStatus.FAILED
    assert world.query("SELECT count(*) FROM @events") == [(0,)]
    assert world.query("SELECT count(*) FROM @_dlt_loads") == [(0,)]
    world.query("DROP TABLE @_dlt_rejected")
    assert [outcome.rejected for outcome in world.run(backfill, plan)] == [1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"unique_columns": ["idd"]},
            "names column 'idd', which table events does not have; its columns are: id, at, order,",
        ),
        ({"accepted_values": {"at": ["soon"]}}, "column at of table events is of type timestamp"),
        ({"accepted_values": {"order": [10, "many"]}}, "has 'many', and column order of table events is of"),
        ({"cursor_within_chunk": "day"}, "names column 'day'"),
    ],
)
def test_what_cannot_be_asked_of_the_rows_is_refused(
    world: World, given: dict[str, Any], message: str
) -> None:
    backfill, plan = world.seeded(source_of(one_day()), 1, assertions=parse_assertions([given]))
    with pytest.raises(GateError) as refused:
        world.run(backfill, plan)
    assert message in str(refused.value)
    row = world.row(plan)
    assert (row.status, row.will_retry) == (ChunkStatus.FAILED, False)
    assert not world.target_has("events")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"evnts": [{"min_rows_per_load": 1}]}, "'evnts' is for a resource that the source does not have"),
        ([{"python": "tests.nowhere:f"}], "cannot be imported: ModuleNotFoundError"),
        ([{"python": f"{HERE}:HERE"}], "is a str; pass a function of one row"),
    ],
)
def test_what_no_source_has_is_refused_before_anything_is_written(
    world: World, given: Any, message: str
) -> None:
    with pytest.raises(GateError) as refused:
        world.seeded(source_of(one_day()), 1, assertions=parse_assertions(given))
    assert message in str(refused.value)
    assert not world.target_has("_dlt_backfills")


@pytest.mark.parametrize(
    ("column", "form", "spell"),
    [
        ("ms", "epoch_ms", lambda at: int(at.timestamp() * 1_000)),
        ("naive", "naive", lambda at: at.replace(tzinfo=None)),
        ("text", "%Y-%m-%dT%H:%M:%S", lambda at: at.strftime("%Y-%m-%dT%H:%M:%S")),
        ("day", "date", lambda at: at.date()),
    ],
)
def test_the_cursor_is_compared_as_it_is_spelled(
    world: World, column: str, form: str, spell: Callable[[datetime], Any]
) -> None:
    hours = [day(1, 0) - timedelta(seconds=1), day(1, 0), day(1, 23), day(2, 0)]

    def events_since(since: str) -> Any:
        yield [{"id": number, column: spell(at)} for number, at in enumerate(hours)]

    make: Callable[..., Any] = dlt.resource(events_since, name="events")
    backfill, plan = world.seeded(
        make,
        1,
        arguments={"since": "{chunk.start}"},
        bounded_by="kwargs",
        name="web_events",
        cursor_format={"events": form},
        assertions=quarantined({"cursor_within_chunk": column}),
    )
    [outcome] = world.run(backfill, plan)
    assert world.query("SELECT id FROM @events ORDER BY id") == [(1,), (2,)]
    violations = [violation for _, violation, _ in world.query(REJECTED)]
    assert len(violations) == outcome.rejected == 2
    assert all(violation.startswith(f"{column} is ") for violation in violations)


@pytest.mark.parametrize("hint", [{"description": "in euros"}, {"data_type": "double"}])
def test_a_declared_column_that_never_had_a_value_is_null(world: World, hint: dict[str, str]) -> None:
    source = source_of([{**row, "amount": None} for row in events(1)], columns={"amount": hint})
    made = quarantined(
        {"accepted_values": {"amount": [1]}}, {"sql": "id > 0"}, {"not_null_columns": "amount"}
    )
    backfill, plan = world.seeded(source, 1, assertions=made)
    assert [outcome.rejected for outcome in world.run(backfill, plan)] == [1]
    assert [row[:2] for row in world.query(REJECTED)] == [("not_null_columns", "amount is null")]


def test_rows_of_an_arrow_table_have_no_ids_of_dlt(world: World) -> None:
    @dlt.resource(name="events")
    def resource(at: Any = dlt.sources.incremental("at", initial_value=EPOCH)) -> Any:
        yield pyarrow.table({"id": [1, 2, 2], "at": [day(1)] * 3})

    backfill, plan = world.seeded(
        resource,
        1,
        name="web_events",
        cursor_format={"*": "datetime"},
        assertions=quarantined({"unique_columns": "id"}),
    )
    [outcome] = world.run(backfill, plan)
    assert (outcome.records, outcome.rejected) == (2, 1)
    assert world.query("SELECT id FROM @events ORDER BY id") == [(1,), (2,)]
    [(_, _, text)] = world.query(REJECTED)
    assert json.loads(text)["id"] == 2


@pytest.mark.parametrize("seed", range(3))
def test_what_is_published_and_what_is_rejected_are_what_was_extracted(world: World, seed: int) -> None:
    chance = random.Random(seed)
    rows = [
        {
            "id": chance.randrange(30),
            "number": number,
            "at": day(chance.randrange(1, 4)),
            "amount": chance.choice([None, -1.5, float("nan"), 2.0]),
            "price": Decimal(chance.randrange(10**18)) / 1_000,
            "state": chance.choice(["open", "shut", "lost", None]),
            "data": chance.choice([b"\x00\xff", b"a"]),
            "items": [
                {"sku": n, "tags": [{"t": n}] * chance.randrange(3)} for n in range(chance.randrange(4))
            ],
        }
        for number in range(120)
    ]
    made: list[dict[str, Any]] = [
        {"unique_columns": ["id"]},
        {"not_null_columns": ["amount"]},
        {"accepted_values": {"state": ["open", "shut"]}},
        {"sql": "amount > 0"},
        {"python": "builtins:bool"},
    ]
    chance.shuffle(made)
    backfill, plan = world.seeded(source_of(rows), 3, assertions=quarantined(*made))
    outcomes = world.run(backfill, plan)
    published = {number for (number,) in world.query("SELECT number FROM @events")}
    documents = [json.loads(text) for _, _, text in world.query(REJECTED)]
    rejected = {document["number"] for document in documents}
    assert published | rejected == set(range(120))
    assert len(published) + len(documents) == 120
    assert published
    assert rejected
    assert sum(outcome.rejected for outcome in outcomes) == len(documents)
    tables = ("events", "events__items", "events__items__tags")
    counts = [world.query(f"SELECT count(*) FROM @{table}")[0][0] for table in tables]
    assert sum(outcome.records for outcome in outcomes) == sum(counts)
    for document in documents:
        items = document["events__items"]
        original = rows[document["number"]]["items"]
        assert [[tag["t"] for tag in item["events__items__tags"]] for item in items] == [
            [tag["t"] for tag in item["tags"]] for item in original
        ]
    assert world.query(
        "SELECT count(*) FROM @events__items i WHERE NOT EXISTS"
        " (SELECT 1 FROM @events e WHERE e._dlt_id = i._dlt_parent_id)"
    ) == [(0,)]
    assert counts[1] == sum(len(rows[number]["items"]) for number in published)

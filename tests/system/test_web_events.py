"""The seed demonstration through a real scheduler: the third day's source is down once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from tests.support.postgres import Postgres
from tests.system.conftest import NEEDLE, WAREHOUSES, Run, World

pytestmark = [pytest.mark.airflow2, pytest.mark.timeout(600)]

DAG_ID = "example_web_events"
GROUP = "web_events"
DATASET = "web_raw"
BACKFILL_ID = "d7a7c6e21e0d8ecb"
RUN_IDS = ("2fe712c1ca2c99a0", "559264ef1526bd83", "2398048a9866e857")


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """What there was after the first DAG run, and the DAG run after it."""

    warehouse: str
    first: Run
    ledger: list[ChunkRow]
    second: Run


@pytest.fixture(scope="module", params=WAREHOUSES)
def demonstration(request: pytest.FixtureRequest, world: World) -> Demonstration:
    warehouse = request.param
    world.outage.write_text("2026-01-03")
    first = world.run(DAG_ID, conn_id=warehouse)
    ledger = world.ledger(warehouse, DATASET)
    second = world.run(DAG_ID, conn_id=warehouse)
    return Demonstration(warehouse=warehouse, first=first, ledger=ledger, second=second)


def rows(world: World, warehouse: str) -> list[int]:
    return [
        number for (number,) in world.query(warehouse, f"SELECT id FROM {DATASET}.page_views ORDER BY id")
    ]


def test_the_failed_chunk_alone_is_tried_again(demonstration: Demonstration) -> None:
    assert demonstration.first.state == "success"
    chunks = demonstration.first.of(f"{GROUP}.chunk")
    assert [chunk.map_index for chunk in chunks] == [0, 1, 2, 3, 4]
    assert [chunk.try_number for chunk in chunks] == [1, 1, 2, 1, 1]


def test_chunks_are_labelled_by_their_interval(demonstration: Demonstration) -> None:
    labels = [chunk.label for chunk in demonstration.first.of(f"{GROUP}.chunk")]
    assert labels == [f"2026-01-0{day} → 2026-01-0{day + 1}" for day in range(1, 6)]


def test_a_chunks_log_says_how_far_it_is_and_nothing_else(world: World, demonstration: Demonstration) -> None:
    logs = world.airflow.task_logs(DAG_ID, f"{GROUP}.chunk")
    [log] = [
        text
        for path, text in logs.items()
        if demonstration.first.run_id in str(path) and path.parts[-2:] == ("map_index=0", "attempt=1.log")
    ]
    line = "chunk 1/5 [2026-01-01T00:00:00+00:00 → 2026-01-02T00:00:00+00:00): "
    said = [
        f"{line}running (run_id={RUN_IDS[0]})",
        "chunk 1 extract: page_views 1 rows in ",
        "chunk 1 normalize: page_views 1 rows in ",
        "chunk 1 load: page_views 1 rows in ",
        f"{line}completed (1 records)",
    ]
    # Airflow 3 writes JSON, which has its own spelling of an arrow.
    places = [log.replace("\\u2192", "→").index(text) for text in said]
    assert places == sorted(places)
    assert not re.findall(r'"level": ?"(?:warning|error|critical)"| (?:WARNING|ERROR|CRITICAL) - ', log)


def test_ledger_says_what_happened(demonstration: Demonstration) -> None:
    ledger = demonstration.ledger
    assert [row.status for row in ledger] == [ChunkStatus.COMPLETED] * 5
    assert [row.attempt for row in ledger] == [1, 1, 2, 1, 1]
    assert [row.records_loaded for row in ledger] == [1] * 5
    assert {row.backfill_id for row in ledger} == {BACKFILL_ID}
    assert (ledger[0].run_id, ledger[2].run_id, ledger[4].run_id) == RUN_IDS
    assert {(row.dag_id, row.dag_run_id, row.task_id) for row in ledger} == {
        (DAG_ID, demonstration.first.run_id, f"{GROUP}.chunk")
    }
    assert [row.map_index for row in ledger] == [0, 1, 2, 3, 4]
    assert {row.error for row in ledger} == {None}


def test_report_counts_what_this_run_loaded(world: World, demonstration: Demonstration) -> None:
    report = world.report(DAG_ID, demonstration.first, GROUP)
    assert (report["completed"], report["skipped"], report["total"]) == (5, 0, 5)
    assert report["records"] == 5
    logs = world.airflow.task_logs(DAG_ID, f"{GROUP}.report")
    line = f"Backfill {BACKFILL_ID}: 5 completed, 0 skipped, 0 claimed elsewhere (5 chunks)"
    assert any(line in text for path, text in logs.items() if demonstration.first.run_id in str(path))


def test_the_same_window_again_does_nothing(world: World, demonstration: Demonstration) -> None:
    assert demonstration.second.state == "success"
    assert [task.map_index for task in demonstration.second.of(f"{GROUP}.chunk")] in ([], [-1])
    report = world.report(DAG_ID, demonstration.second, GROUP)
    assert (report["completed"], report["skipped"]) == (0, 5)
    assert world.ledger(demonstration.warehouse, DATASET) == demonstration.ledger
    assert rows(world, demonstration.warehouse) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("demonstration", ["duckdb"], indirect=True)
def test_clearing_the_whole_run_maps_the_same_chunks_and_loads_none(
    world: World, demonstration: Demonstration
) -> None:
    world.airflow.api.clear(DAG_ID, demonstration.first.run_id)
    cleared = world.wait(DAG_ID, demonstration.first.run_id)
    assert cleared.state == "success"
    chunks = cleared.of(f"{GROUP}.chunk")
    assert [chunk.label for chunk in chunks] == [
        task.label for task in demonstration.first.of(f"{GROUP}.chunk")
    ]
    assert world.ledger("duckdb", DATASET) == demonstration.ledger
    assert rows(world, "duckdb") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("demonstration", ["postgres"], indirect=True)
def test_password_is_nowhere(world: World, demonstration: Demonstration, postgres_server: Postgres) -> None:
    """Not in a log, an XCom, a rendered field or the ledger, and also not when the database refuses it."""
    refused = world.run(DAG_ID, conn_id="absent")
    assert refused.state == "failed"
    logs = "\n".join(world.airflow.task_logs(DAG_ID, f"{GROUP}.plan").values())
    assert 'database "absent" does not exist' in logs.replace("\\", "")

    files = [path for path in world.airflow.home.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [path for path in files if NEEDLE in path.read_text(errors="replace")] == []
    for database, word in ((world.airflow.database, DAG_ID), ("warehouse", BACKFILL_ID)):
        found = list(texts(postgres_server, database))
        assert any(word in text for _, text in found)
        assert [table for table, text in found if NEEDLE in text] == []


def texts(server: Postgres, database: str) -> Iterator[tuple[str, str]]:
    """Every row of every table as text."""
    tables = server.execute(
        "SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables"
        " WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('pg_catalog', 'information_schema')",
        database=database,
    )
    assert tables
    for (table,) in tables:
        for (text,) in server.execute(f"SELECT CAST(t AS text) FROM {table} t", database=database):
            yield table, text

"""The runs ledger: one row an attempt, and no attempt that fails because of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.gates import parse_assertions
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.queries import load_queries
from airflow_provider_backfill.engine.runner import this_claimant
from airflow_provider_backfill.engine.runs import RunRecord
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.exceptions import AttemptError, SourceNotFoundError
from tests.support.sources import events, source_of
from tests.support.worlds import IDS, World

#: The columns of dlt-ops 0.1.0, and which of them may not be null.
COLUMNS = (
    "pipeline_name*, source_section*, resource_name, destination*, dataset*, run_id*, dlt_run_id, "
    "backfill_id, trigger_source*, started_at*, completed_at, status*, records_extracted, records_loaded, "
    "error_summary"
)
ENDS = (
    "SELECT status, records_extracted, records_loaded, error_summary, completed_at >= started_at"
    " FROM @_dlt_ops_runs ORDER BY started_at"
)


@pytest.fixture
def world(target: Target, settings: Settings) -> Iterator[World]:
    world = World(target, settings)
    yield world
    assert world.leftovers() == []


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_the_columns_are_those_of_dlt_ops() -> None:
    body = load_queries("runs.sql")["create"].partition("(\n")[2].rpartition("\n)")[0]
    found = [line.strip().rstrip(",") for line in body.splitlines()]
    assert ", ".join(f"{column.split()[0]}{'*' * ('NOT NULL' in column)}" for column in found) == COLUMNS


def test_each_attempt_has_a_row_and_a_failed_one_stays_failed(world: World) -> None:
    rows: list[dict[str, Any]] = events()

    def some() -> Iterator[dict[str, Any]]:
        yield from rows
        if len(rows) < 6:
            raise RuntimeError("the API said\n503")

    made = parse_assertions([{"sql": "id <> 2", "on_failure": "quarantine"}])
    backfill, plan = world.seeded(source_of(some), assertions=made)
    world.run(backfill, plan, 1)
    dropped = rows.pop()
    with pytest.raises(AttemptError):
        world.run(backfill, plan, 2)
    rows.append(dropped)
    world.run(backfill, plan, 2)
    world.run(backfill, plan, 2)  # completed already: no attempt
    assert world.query(ENDS) == [
        ("completed", 1, 3, None, True),
        ("failed", None, None, "RuntimeError: the API said 503", True),
        ("completed", 1, 0, None, True),
    ]
    columns = (
        "pipeline_name, source_section, resource_name, destination, dataset, backfill_id, trigger_source"
    )
    assert world.query(f"SELECT DISTINCT {columns} FROM @_dlt_ops_runs") == [
        (
            "web_events",
            "web_events",
            None,
            world.target.dialect.name,
            "web_raw",
            plan.backfill_id,
            "backfill",
        )
    ]
    assert world.query("SELECT run_id, dlt_run_id FROM @_dlt_ops_runs ORDER BY started_at") == [
        (plan.chunks[0].run_id, world.row(plan, 1).load_ids),
        (plan.chunks[1].run_id, None),
        (plan.chunks[1].run_id, world.row(plan, 2).load_ids),
    ]


def test_one_that_fails_before_it_has_read_anything_has_a_row_too(world: World) -> None:
    backfill, plan = world.seeded(source_of(events()))
    broken = world.backfill("no_such_module:source")
    with pytest.raises(SourceNotFoundError):
        world.run(broken, plan, 1)
    [(status, extracted, loaded, error, ended)] = world.query(ENDS)
    assert (status, extracted, loaded, ended) == ("failed", None, None, True)
    assert "no module named 'no_such_module'" in error
    world.run(backfill, plan, 1)
    assert [row[0] for row in world.query(ENDS)] == ["failed", "completed"]


def test_one_that_never_said_how_it_ended_failed_once_another_took_over(world: World) -> None:
    backfill, plan = world.seeded(source_of(events()))
    with world.target.connect(5) as session:
        ledger = Ledger(session, world.target)
        row = ledger.chunk(plan.backfill_id, "000000")
        claim = ledger.claim(row, this_claimant(), 60)
        record = RunRecord(target=world.target, claim=claim, source_name="web_events", resources="")
        record.begin(session)
        ledger.fail(claim, "killed")
    assert [row[0] for row in world.query(ENDS)] == ["running"]
    world.run(backfill, plan, 1)
    reason = "it was interrupted, and another attempt took over"
    assert world.query(ENDS) == [("failed", None, None, reason, True), ("completed", 1, 3, None, True)]
    with world.target.connect(5) as session:
        record.end(session, "completed", extracted=1, loaded=3)
    assert [row[0] for row in world.query(ENDS)] == ["failed", "completed"]


def test_a_table_that_cannot_be_written_is_one_line_and_the_run_goes_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    backfill, plan = world.seeded(source_of(events()))
    world.query("CREATE TABLE @_dlt_ops_runs (run_id INTEGER)")
    [outcome] = world.run(backfill, plan, 1)
    assert (outcome.loaded, outcome.records) == (True, 3)
    [error] = errors(caplog)
    assert error.startswith("chunk 1: the run is not recorded in _dlt_ops_runs: ")
    assert "\n" not in error
    assert world.query(IDS) == [(1, 10)]
    caplog.clear()
    # The table goes away while the attempt runs.
    world.query("DROP TABLE @_dlt_ops_runs")

    def rows() -> Iterator[dict[str, Any]]:
        yield from events()
        with world.target.connect(5) as session:
            dataset = world.target.dialect.quote(world.target.dataset_name)
            session.execute(f"DROP TABLE {dataset}._dlt_ops_runs")

    [outcome] = world.run(world.backfill(source_of(rows)), plan, 2)
    assert outcome.loaded
    assert len(errors(caplog)) == 1
    assert world.query(IDS) == [(1, 10), (2, 20)]


def test_a_table_that_somebody_has_locked_does_not_block_a_run(
    pg_target: Target, settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_backfill.engine.observers.STATEMENT_SECONDS", 0.2)
    world = World(pg_target, settings)
    backfill, plan = world.seeded(source_of(events()))
    world.run(backfill, plan, 1)
    with pg_target.connect(5) as other, other.transaction():
        other.execute("LOCK TABLE web_raw._dlt_ops_runs IN ACCESS EXCLUSIVE MODE")
        [outcome] = world.run(backfill, plan, 2)
    assert outcome.loaded
    [error] = errors(caplog)
    assert "statement timeout" in error
    assert world.query(IDS) == [(1, 10), (2, 20)]

"""A DAG whose trigger is the request to backfill: what it takes, and what asking again does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.airflow_api import AirflowError
from tests.support.ledgers import wait_until
from tests.system.conftest import PATIENCE, World

pytestmark = [pytest.mark.airflow2, pytest.mark.timeout(600)]

DAG_ID = "example_on_demand"
GROUP = "site"
DATASET = "web_on_demand"
CHUNK = f"{GROUP}.chunk"
ASKED = {"start": "2026-01-01", "end": "2026-01-03"}


@pytest.fixture(autouse=True)
def there(world: World) -> None:
    world.airflow.wait_for_dags(DAG_ID)


def loads(world: World, table: str) -> dict[int, str]:
    """Which load brought each row of the first two days."""
    rows = world.query("duckdb", f"SELECT id, _dlt_load_id FROM {DATASET}.{table} WHERE id < 3 ORDER BY id")
    assert [number for number, _ in rows] == [1, 2]
    return dict(rows)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"start": "2026-01-01"},
        {**ASKED, "end": "tomorrow"},
        {**ASKED, "end": "2026-02-30"},
        {**ASKED, "end": "2026-01-03T00:00:00"},
        {**ASKED, "end": None},
        {**ASKED, "chunk": "1 day"},
        {**ASKED, "chunk": "0d"},
        {**ASKED, "chunk": 1},
        {**ASKED, "resources": "searches"},
        {**ASKED, "resources": ["orders"]},
        {**ASKED, "restate": "no"},
        {**ASKED, "confirm": "yes"},
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_before_there_is_a_dag_run(world: World, asked: dict[str, Any]) -> None:
    before = world.airflow.api.run_ids(DAG_ID)
    with pytest.raises(AirflowError, match=r"(?s)/dagRuns: 400 .*[Pp]aram"):
        world.airflow.api.trigger(DAG_ID, **asked)
    assert world.airflow.api.run_ids(DAG_ID) == before


def test_a_range_that_is_done_is_a_quick_success_and_restate_replaces_it(world: World) -> None:
    first = world.run(DAG_ID, **ASKED)
    assert first.state == "success"
    assert world.report(DAG_ID, first, GROUP)["completed"] == 2
    brought = {table: loads(world, table) for table in ("page_views", "searches")}

    again = world.run(DAG_ID, **ASKED, chunk="01d", resources=[], restate=False)
    assert again.state == "success"
    assert [task.map_index for task in again.of(CHUNK)] in ([], [-1])
    assert world.report(DAG_ID, again, GROUP)["skipped"] == 2
    assert {table: loads(world, table) for table in brought} == brought

    restated = world.run(DAG_ID, **ASKED, restate=True)
    assert restated.state == "success"
    assert world.report(DAG_ID, restated, GROUP)["completed"] == 2
    for table, before in brought.items():
        assert not set(before.values()) & set(loads(world, table).values())


def test_asking_for_a_range_that_is_being_loaded_joins_it(world: World) -> None:
    api = world.airflow.api
    asked = {"start": "2026-01-03", "end": "2026-01-07", "resources": ["searches"]}
    first = api.trigger(DAG_ID, **asked)

    def begun() -> bool:
        world.airflow.check()
        return any(task.task_id == CHUNK and task.state == "success" for task in api.tasks(DAG_ID, first))

    wait_until(begun, PATIENCE)
    second = api.trigger(DAG_ID, **asked)
    assert api.run_state(DAG_ID, first) == "running"
    runs = [world.wait(DAG_ID, run_id) for run_id in (first, second)]
    assert [run.state for run in runs] == ["success", "success"]
    assert {task.try_number for run in runs for task in run.of(CHUNK) if task.map_index >= 0} <= {1}
    tallies = [world.report(DAG_ID, run, GROUP) for run in runs]
    assert [tally["completed"] + tally["skipped"] for tally in tallies] == [4, 4]
    assert sum(tally["completed"] for tally in tallies) == 4
    joined = [row for row in world.ledger("duckdb", DATASET) if row.resource_name == "searches"]
    assert [(row.status, row.attempt) for row in joined] == [("completed", 1)] * 4
    rows = world.query("duckdb", f"SELECT id FROM {DATASET}.searches WHERE id > 2 ORDER BY id")
    assert rows == [(3,), (4,), (5,), (6,)]


@pytest.mark.parametrize("end", ["2026-01-03", "2026-01-01"])
def test_a_window_without_length_fails_its_plan_at_once(world: World, end: str) -> None:
    run = world.run(DAG_ID, start="2026-01-03", end=end)
    assert run.state == "failed"
    [plan] = run.of(f"{GROUP}.plan")
    assert (plan.state, plan.try_number) == ("failed", 1)
    assert {task.state for task in run.of(CHUNK)} == {"upstream_failed"}
    logs = world.airflow.task_logs(DAG_ID, f"{GROUP}.plan")
    [said] = [text for path, text in logs.items() if run.run_id in str(path)]
    midnight = "T00:00:00+00:00'"
    assert f"empty window: end '{end}{midnight} is not after start '2026-01-03{midnight}" in said

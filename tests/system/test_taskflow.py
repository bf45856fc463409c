"""Decorated functions through a real scheduler, and the links on their tasks."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.support.airflow import MODERN
from tests.system.conftest import Run, World

pytestmark = [pytest.mark.airflow2, pytest.mark.timeout(600)]

DAG_ID = "example_taskflow"


@pytest.fixture(scope="module")
def run(world: World) -> Run:
    world.airflow.wait_for_dags(DAG_ID)
    return world.run(DAG_ID)


def test_the_functions_source_is_loaded(world: World, run: Run) -> None:
    assert run.state == "success"
    assert [chunk.map_index for chunk in run.of("web_events.chunk")] == [0, 1, 2, 3, 4]
    rows = world.query("duckdb", "SELECT id FROM web_taskflow.page_views ORDER BY id")
    # The second was to be left out, and the sixth is the last day.
    assert rows == [(1,), (3,), (4,), (5,), (6,)]
    ledger = world.ledger("duckdb", "web_taskflow")
    assert [row.task_id for row in ledger].count("web_events.chunk") == 5
    assert {row.source_section for row in ledger} == {"web_events"}


@pytest.mark.parametrize(
    ("task_id", "map_index", "group"),
    [
        ("web_events.plan", -1, "web_events"),
        ("web_events.chunk", 2, "web_events"),
        ("web_events.report", -1, "web_events"),
        ("last_day", -1, None),
    ],
)
def test_each_task_links_to_its_backfill(
    world: World, run: Run, task_id: str, map_index: int, group: str | None
) -> None:
    run_id = quote(run.run_id, safe="")
    if MODERN:
        page = f"/dags/{DAG_ID}/runs/{run_id}/tasks/{f'group/{group}' if group else task_id}"
    else:
        page = f"/dags/{DAG_ID}/grid?dag_run_id={run_id}&task_id={group or task_id}"
    assert world.airflow.api.links(DAG_ID, run.run_id, task_id, map_index) == {"Backfill": page}

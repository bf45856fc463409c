"""Groups of a backfill among other tasks: order, pools, callbacks, timeouts, and the operators by hand."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from airflow_provider_backfill.engine.records import ChunkStatus
from tests.support.ledgers import wait_until
from tests.system.conftest import PATIENCE, Run, World

pytestmark = [pytest.mark.airflow2, pytest.mark.timeout(600)]

WAREHOUSE = "postgres"
REGIONS = ("eu", "us")


@pytest.fixture
def folder(world: World, tmp_path: Path) -> Path:
    """What the sources look into, a folder each."""
    world.airflow.wait_for_dags("composed", "composed_by_hand", "composed_timeout")
    for name in (*REGIONS, "planned", "windows"):
        (tmp_path / name).mkdir()
    return tmp_path


def ids(world: World, dataset: str) -> list[int]:
    return [number for (number,) in world.query(WAREHOUSE, f"SELECT id FROM {dataset}.events ORDER BY id")]


def states(run: Run) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for task in run.tasks:
        found.setdefault(task.task_id, set()).add(task.state)
    return found


def test_the_example(world: World) -> None:
    dag_id = "example_task_groups"
    world.airflow.wait_for_dags(dag_id)
    run = world.run(dag_id)
    assert run.state == "success"
    assert [len(run.of(f"site.{name}.chunk")) for name in ("page_views", "searches")] == [6, 2]
    for table in ("page_views", "searches"):
        rows = world.query("duckdb", f"SELECT id FROM web_groups.{table} ORDER BY id")
        assert [number for (number,) in rows] == [1, 2, 3, 4, 5, 6]


def test_groups_in_a_loop_between_other_tasks(world: World, folder: Path) -> None:
    world.airflow.command("pools", "set", "composed", "1", "one chunk at a time")
    (folder / "eu" / "down-2").touch()
    run = world.run("composed", folder=str(folder))
    assert run.state == "failed"
    found = states(run)
    assert found["regions.eu.report"] == {"failed"}
    assert found["regions.us.report"] == found["first"] == found["tidy"] == {"success"}
    assert found["last"] == {"upstream_failed"}
    assert ids(world, "composed_us") == [1, 2, 3]
    # The callback was called for the chunk that failed, and for the report of its window.
    failures = (folder / "failures").read_text().splitlines()
    assert sorted(failures) == ["regions.eu.chunk 1", "regions.eu.report -1"]

    (folder / "eu" / "down-2").unlink()
    world.airflow.api.clear("composed", run.run_id)
    mended = world.wait("composed", run.run_id)
    assert mended.state == "success"
    assert states(mended)["last"] == {"success"}
    assert ids(world, "composed_eu") == [1, 2, 3]
    # Three might run at once of each, but for the pool.
    rows = [row for region in REGIONS for row in world.ledger(WAREHOUSE, f"composed_{region}")]
    rows.sort(key=lambda row: row.claimed_at)
    assert len(rows) == 6
    for before, behind in itertools.pairwise(rows):
        assert before.completed_at <= behind.claimed_at


def test_the_operators_by_hand(world: World, folder: Path) -> None:
    (folder / "planned" / "down-2").touch()
    run = world.run("composed_by_hand", folder=str(folder))
    assert run.state == "failed"
    # Nothing was said of limits, so the failure of one keeps nobody.
    assert [task.state for task in run.of("chunk")] == ["success", "failed", "success"]
    assert run.of("chunk")[0].label == "2026-01-01 → 2026-01-02"
    assert [task.label for task in run.of("windows")] == [
        "2026-01-05 → 2026-01-07",
        "2026-01-01 → 2026-01-02",
    ]
    assert ids(world, "composed_planned") == [1, 3]
    assert ids(world, "composed_windows") == [1, 5, 6]

    (folder / "planned" / "down-2").unlink()
    world.airflow.clear_tasks("composed_by_hand", run.run_id, [("chunk", 1), ("report", -1)])
    mended = world.wait("composed_by_hand", run.run_id)
    assert mended.state == "success"
    assert ids(world, "composed_planned") == [1, 2, 3]
    assert world.airflow.api.xcom("composed_by_hand", run.run_id, "report")["total"] == 3


def test_a_chunk_that_takes_too_long_is_given_back_at_once(world: World, folder: Path) -> None:
    (folder / "hold-1").touch()
    run_id = world.airflow.api.trigger("composed_timeout", folder=str(folder))

    def given_back() -> bool:
        world.airflow.check()
        if not (folder / "reads").exists():
            return False
        first = world.ledger(WAREHOUSE, "composed_timeout")[0]
        if first.status is not ChunkStatus.FAILED:
            return False
        assert first.lease_expires_at is None
        assert first.error == "stopped by AirflowTaskTimeout"
        assert first.will_retry
        return True

    wait_until(given_back, PATIENCE)
    (folder / "hold-1").unlink()
    run = world.wait("composed_timeout", run_id)
    assert run.state == "success"
    assert [task.try_number for task in run.of("events.chunk")] == [2, 1, 1]
    assert ids(world, "composed_timeout") == [1, 2, 3]

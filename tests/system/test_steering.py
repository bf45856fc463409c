"""What a person does to a running backfill in the Airflow UI: clear, mark failed, trigger twice."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from tests.support.ledgers import wait_until
from tests.system.conftest import PATIENCE, Run, World

pytestmark = [pytest.mark.airflow2, pytest.mark.timeout(600)]

CHUNK = "events.chunk"
REPORT = "events.report"
WAREHOUSE = "postgres"


class Steered:
    """One of the DAGs of ``dags/steering.py`` and the folder that its source looks into."""

    def __init__(self, world: World, dag_id: str, folder: Path) -> None:
        self.world = world
        self.dag_id = dag_id
        self.folder = folder
        self._seen = 0

    def trigger(self) -> str:
        return self.world.airflow.api.trigger(self.dag_id, folder=str(self.folder))

    def run(self) -> Run:
        return self.world.wait(self.dag_id, self.trigger())

    def clear(self, run: Run, *tasks: tuple[str, int]) -> Run:
        self.world.airflow.clear_tasks(self.dag_id, run.run_id, tasks)
        return self.world.wait(self.dag_id, run.run_id)

    def put(self, name: str) -> None:
        (self.folder / name).touch()

    def take(self, name: str) -> None:
        (self.folder / name).unlink()

    def reads(self) -> list[int]:
        """The days that the source was asked for since this was asked last."""
        days = [int(line) for line in (self.folder / "reads").read_text().splitlines()]
        new, self._seen = days[self._seen :], len(days)
        return new

    def ledger(self) -> list[ChunkRow]:
        return self.world.ledger(WAREHOUSE, self.dag_id)

    def statuses(self) -> list[str]:
        return [str(row.status) for row in self.ledger()]

    def rows(self) -> list[tuple[int, int]]:
        """Id and version of each row."""
        sql = f"SELECT id, version FROM {self.dag_id}.events ORDER BY id"
        return [(number, version) for number, version in self.world.query(WAREHOUSE, sql)]

    def until_given_back(self, chunk: int) -> None:
        """Airflow tells the worker at its next heartbeat, when the DAG run may have ended."""
        wait_until(lambda: self.statuses()[chunk] != ChunkStatus.RUNNING, PATIENCE)

    def until_running(self, chunk: int, run_id: str) -> None:
        def look() -> bool:
            self.world.airflow.check()
            state = self.world.airflow.api.run_state(self.dag_id, run_id)
            assert state in ("queued", "running"), f"the DAG run is {state}"
            return (self.folder / "reads").exists() and self.statuses()[chunk] == ChunkStatus.RUNNING

        wait_until(look, PATIENCE)


@pytest.fixture
def steered(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Steered:
    return Steered(world, request.param, tmp_path)


@pytest.mark.parametrize("steered", ["steered_clear"], indirect=True)
def test_a_chunk_cleared_alone_is_loaded_again_and_a_whole_run_is_not(steered: Steered) -> None:
    run = steered.run()
    assert run.state == "success"
    assert sorted(steered.reads()) == [1, 2, 3]
    before = dict(steered.rows())

    cleared = steered.clear(run, (CHUNK, 1))
    assert (cleared.state, steered.reads()) == ("success", [2])
    assert dict(steered.rows()) == {**before, 2: 4}
    assert [task.try_number for task in cleared.of(CHUNK)] == [1, 2, 1]

    steered.world.airflow.api.clear(steered.dag_id, run.run_id)
    whole = steered.world.wait(steered.dag_id, run.run_id)
    assert (whole.state, steered.reads()) == ("success", [])

    again = steered.clear(run, (CHUNK, 2), (REPORT, -1))
    assert (again.state, steered.reads()) == ("success", [3])
    assert dict(steered.rows()) == {**before, 2: 4, 3: 5}
    assert steered.statuses() == ["completed"] * 3


@pytest.mark.parametrize("steered", ["steered_mark"], indirect=True)
def test_a_chunk_marked_failed_is_given_back_at_once_and_the_rest_stays_pending(steered: Steered) -> None:
    steered.put("hold-1")
    run_id = steered.trigger()
    steered.until_running(0, run_id)
    steered.world.airflow.api.set_state(steered.dag_id, run_id, CHUNK, 0, "failed")
    run = steered.world.wait(steered.dag_id, run_id)
    assert run.state == "failed"
    assert [task.state for task in run.of(CHUNK)] == ["failed", "skipped", "skipped"]
    steered.until_given_back(0)
    first, *rest = steered.ledger()
    assert (first.status, first.lease_expires_at) == (ChunkStatus.FAILED, None)
    assert first.error in ("the task was told to stop", "stopped by SIGTERM")
    assert [row.status for row in rest] == [ChunkStatus.PENDING] * 2
    said = "".join(steered.world.airflow.task_logs(steered.dag_id, REPORT).values())
    assert "3 of 3 chunks not completed" in said

    steered.take("hold-1")
    steered.world.airflow.api.clear(steered.dag_id, run_id)
    assert steered.world.wait(steered.dag_id, run_id).state == "success"
    assert [number for number, _ in steered.rows()] == [1, 2, 3]
    assert [row.attempt for row in steered.ledger()] == [2, 1, 1]


@pytest.mark.parametrize("steered", ["steered_stop"], indirect=True)
def test_a_chunk_that_fails_for_good_stops_those_behind_it(steered: Steered) -> None:
    steered.put("down-2")
    run = steered.run()
    assert run.state == "failed"
    assert [task.state for task in run.of(CHUNK)] == ["success", "failed", "skipped"]
    assert steered.statuses() == ["completed", "failed", "pending"]
    assert steered.reads() == [1, 2]
    said = "".join(steered.world.airflow.task_logs(steered.dag_id, REPORT).values())
    assert "2 of 3 chunks not completed" in said
    assert "the source of day 2 is down" in said

    # The two that are left, as somebody at the grid would.
    steered.take("down-2")
    mended = steered.clear(run, (CHUNK, 1), (CHUNK, 2), (REPORT, -1))
    assert (mended.state, steered.reads()) == ("success", [2, 3])
    assert [number for number, _ in steered.rows()] == [1, 2, 3]


@pytest.mark.parametrize("steered", ["steered_retry"], indirect=True)
def test_later_chunks_wait_for_one_that_will_be_tried_again(steered: Steered) -> None:
    steered.put("down-once-1")
    run = steered.run()
    assert run.state == "success"
    assert steered.reads() == [1, 1, 2, 3]
    ledger = steered.ledger()
    assert [row.attempt for row in ledger] == [2, 1, 1]
    for before, behind in itertools.pairwise(ledger):
        assert before.completed_at <= behind.claimed_at


@pytest.mark.parametrize("steered", ["steered_twice"], indirect=True)
def test_two_dag_runs_of_one_window_load_each_chunk_once(steered: Steered) -> None:
    steered.put("hold-1")
    first = steered.trigger()
    steered.until_running(0, first)
    second = steered.trigger()

    def joined() -> bool:
        steered.world.airflow.check()
        tasks = steered.world.airflow.api.tasks(steered.dag_id, second)
        return any(task.task_id == CHUNK and task.state == "deferred" for task in tasks)

    wait_until(joined, PATIENCE)
    steered.take("hold-1")
    runs = [steered.world.wait(steered.dag_id, run_id) for run_id in (first, second)]
    assert [run.state for run in runs] == ["success", "success"]
    assert sorted(steered.reads()) == [1, 2, 3]
    assert [row.attempt for row in steered.ledger()] == [1, 1, 1]
    assert [number for number, _ in steered.rows()] == [1, 2, 3]
    tallies = [steered.world.report(steered.dag_id, run, "events") for run in runs]
    assert sum(tally["completed"] for tally in tallies) == 3
    assert sum(tally["skipped"] for tally in tallies) == 3
    assert {task.try_number for run in runs for task in run.of(CHUNK)} == {1}


@pytest.mark.parametrize("steered", ["steered_backward"], indirect=True)
def test_groups_of_chunks_from_the_latest_on(steered: Steered) -> None:
    steered.put("down-2")
    run = steered.run()
    assert run.state == "failed"
    assert [task.label for task in run.of(CHUNK)] == ["2026-01-02 → 2026-01-04", "2026-01-01 → 2026-01-02"]
    assert steered.reads() == [3, 2]
    assert steered.statuses() == ["pending", "failed", "completed"]
    steered.take("down-2")
    steered.world.airflow.api.clear(steered.dag_id, run.run_id)
    assert steered.world.wait(steered.dag_id, run.run_id).state == "success"
    assert steered.reads() == [2, 1]
    assert [number for number, _ in steered.rows()] == [1, 2, 3]

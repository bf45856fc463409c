"""Order, groups of chunks, stopping, and restating a window, task by task without a scheduler."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
)
from tests.support.tasks import Tasks, ids_in, rows_of, run_task

pytestmark = pytest.mark.usefixtures("sources")


def ids(mapped: list[dict[str, Any]]) -> list[list[str]]:
    return [[chunk[0] for chunk in part["chunks"]] for part in mapped]


class TestOrder:
    def test_backward_begins_with_the_latest(self, warehouse: Target) -> None:
        tasks = Tasks()
        mapped = tasks.plan(order="backward")
        assert ids(mapped) == [["000004"], ["000003"], ["000002"], ["000001"], ["000000"]]
        tasks.chunk(mapped[0])
        assert ids_in(warehouse) == [5]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"order": "sideways"}, "order 'sideways' is unknown; pass forward or backward"),
            ({"chunks_per_task": 0}, "chunks_per_task 0 is unknown; pass a whole number from 1"),
            ({"chunks_per_task": "two"}, "chunks_per_task 'two' is unknown"),
            ({"restate": "perhaps"}, "restate 'perhaps' is unknown; pass true or false"),
        ],
    )
    def test_other_words_are_refused_before_anything_is_written(
        self, warehouse: Target, changes: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(AirflowFailException, match=message):
            Tasks().plan(**changes)
        assert rows_of(warehouse) == []

    def test_a_task_whose_turn_has_not_come_comes_again(self, warehouse: Target) -> None:
        tasks = Tasks()
        mapped = tasks.plan()
        operator = ChunkedBackfillOperator(
            task_id="chunk",
            max_active_chunks=1,
            retry_delay=timedelta(seconds=40),
            **tasks.source,
            **mapped[1],
        )
        for state, seconds in (("running", 20), ("up_for_retry", 40)):
            ti = tasks.ti("chunk", map_index=1, states={0: state, 1: "running"})
            with pytest.raises(AirflowRescheduleException) as caught:
                run_task(operator, ti)
            wait = caught.value.reschedule_date - datetime.now(UTC)
            assert timedelta(seconds=seconds - 5) < wait <= timedelta(seconds=seconds)
        assert [row.attempt for row in rows_of(warehouse)] == [None] * 5
        ti = tasks.ti("chunk", map_index=1, states={0: "failed", 1: "running"})
        assert run_task(operator, ti)["status"] == "completed"

    def test_the_rest_is_skipped_once_enough_have_failed(self, warehouse: Target) -> None:
        tasks = Tasks(retries=1)
        mapped = tasks.plan()

        def run(index: int, most: int, before: str = "failed", **tries: int) -> dict[str, Any]:
            operator = ChunkedBackfillOperator(
                task_id="chunk", max_active_chunks=1, max_failed_chunks=most, **tasks.source, **mapped[index]
            )
            states = {0: before, 1: "running", 2: "running"}
            result: dict[str, Any] = run_task(
                operator, tasks.ti("chunk", map_index=index, states=states, **tries)
            )
            return result

        said = r"2026-01-02 → 2026-01-03 is left pending: 1 before it failed for good \(map index 0\)"
        with pytest.raises(AirflowSkipException, match=said):
            run(1, most=1)
        assert rows_of(warehouse)[1].status == "pending"
        # Skipped again with its whole DAG run; run when somebody clears this one task.
        tasks.plan()
        with pytest.raises(AirflowSkipException):
            run(1, most=1, try_number=2, max_tries=2)
        assert run(1, most=1, try_number=3, max_tries=3)["status"] == "completed"
        # Cleared alone while others are ahead, it comes again, and is known for that then.
        with pytest.raises(AirflowRescheduleException):
            run(2, most=1, try_number=2, max_tries=2)
        with pytest.raises(AirflowSkipException):
            run(2, most=1)
        # One that had begun goes on with its retries, and two may fail where two are allowed.
        with pytest.raises(AirflowRescheduleException):
            run(2, most=1, try_number=2, max_tries=1)
        with pytest.raises(AirflowRescheduleException):
            run(2, most=2)


class TestGroups:
    def test_a_task_runs_its_chunks_one_by_one(self, warehouse: Target) -> None:
        tasks = Tasks()
        mapped = tasks.plan(chunks_per_task=2)
        assert ids(mapped) == [["000000", "000001"], ["000002", "000003"], ["000004"]]
        assert [part["interval_label"] for part in mapped] == [
            "2026-01-01 → 2026-01-03",
            "2026-01-03 → 2026-01-05",
            "2026-01-05 → 2026-01-06",
        ]
        result = tasks.chunk(mapped[1], 1)
        assert (result["chunk_ids"], result["rows"]) == (["000002", "000003"], 2)
        assert (result["completed"], result["skipped"], result["status"]) == (2, 0, "completed")
        rows = rows_of(warehouse)
        assert [row.status for row in rows] == ["pending", "pending", "completed", "completed", "pending"]
        assert [row.map_index for row in rows] == [None, None, 1, 1, None]
        assert ids_in(warehouse) == [3, 4]

    def test_a_retry_runs_what_is_left(self, warehouse: Target, tmp_path: Path) -> None:
        outage = tmp_path / "outage"
        outage.touch()
        tasks = Tasks(source_kwargs={"outage": str(outage)}, retries=1)
        [part] = tasks.plan(chunks_per_task=5)
        with pytest.raises(AirflowException, match="the API is down"):
            tasks.chunk(part, max_tries=1)
        rows = rows_of(warehouse)
        assert [row.status for row in rows] == ["completed", "completed", "failed", "pending", "pending"]
        result = tasks.chunk(part, try_number=2, max_tries=1)
        assert (result["completed"], result["skipped"], result["rows"]) == (3, 2, 5)
        assert [row.attempt for row in rows_of(warehouse)] == [1, 1, 2, 1, 1]
        assert ids_in(warehouse) == [1, 2, 3, 4, 5]

    def test_a_group_has_no_gap_and_keeps_its_order(self, warehouse: Target) -> None:
        before = Tasks("before")
        before.chunk(before.plan()[2])
        assert ids(Tasks("one").plan(chunks_per_task=3)) == [["000000", "000001"], ["000003", "000004"]]
        backward = Tasks("two").plan(chunks_per_task=2, order="backward")
        assert ids(backward) == [["000004", "000003"], ["000001", "000000"]]
        assert backward[0]["interval_label"] == "2026-01-04 → 2026-01-06"

    def test_the_list_of_a_dag_run_stays_when_its_size_is_edited(self, warehouse: Target) -> None:
        tasks = Tasks()
        mapped = tasks.plan(chunks_per_task=2)
        assert tasks.plan(chunks_per_task=5) == mapped

    def test_groups_are_what_airflow_maps(self, warehouse: Target, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
        with pytest.raises(
            AirflowFailException, match=r"5 chunks to run, more than the 2.*chunks_per_task=3"
        ):
            Tasks().plan()
        with pytest.raises(AirflowFailException, match="5 chunks to run in 3 tasks, more than the 2"):
            Tasks().plan(chunks_per_task=2)
        assert rows_of(warehouse) == []
        assert len(Tasks().plan(chunks_per_task=3)) == 2

    def test_a_group_that_is_cleared_alone_is_loaded_again_as_a_whole(self, warehouse: Target) -> None:
        tasks = Tasks(retries=0)
        [first, _] = tasks.plan(chunks_per_task=4)
        tasks.chunk(first)
        result = tasks.chunk(first, try_number=2, max_tries=1)
        assert (result["completed"], result["skipped"]) == (4, 0)
        assert ids_in(warehouse) == [1, 2, 3, 4]


class TestRestate:
    def test_a_window_is_loaded_again_once_a_dag_run(self, warehouse: Target) -> None:
        first = Tasks("first")
        for index, part in enumerate(first.plan()):
            first.chunk(part, index)
        loads = [row.load_ids for row in rows_of(warehouse)]
        second = Tasks("second")
        mapped = second.plan(restate="True")
        assert len(mapped) == 5
        assert [row.status for row in rows_of(warehouse)] == ["pending"] * 5
        # The old rows stand until the new ones are there.
        assert ids_in(warehouse) == [1, 2, 3, 4, 5]
        for index, part in enumerate(mapped[:3]):
            second.chunk(part, index)
        assert ids_in(warehouse) == [1, 2, 3, 4, 5]
        # The plan task again, for example with the whole run.
        assert second.plan(restate="True") == mapped
        assert [row.status for row in rows_of(warehouse)] == ["completed"] * 3 + ["pending"] * 2
        for index, part in enumerate(mapped):
            second.chunk(part, index)
        assert second.report()["completed"] == 5
        assert not set(loads) & {row.load_ids for row in rows_of(warehouse)}
        assert ids_in(warehouse) == [1, 2, 3, 4, 5]

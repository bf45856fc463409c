"""The tasks of a group against real databases, run one by one without a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.runner import this_claimant
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import AirflowException, AirflowFailException
from tests.support.tasks import BACKFILL_ID, WINDOW, Tasks, duckdb_connection, ids_in, rows_of, run_task


def never_read(target: Target, backfill_id: str, chunk_id: str) -> None:
    """Complete a chunk as somebody else would, without its rows."""
    with target.connect(5) as session:
        ledger = Ledger(session, target)
        claim = ledger.claim(ledger.chunk(backfill_id, chunk_id), this_claimant(), 60)
        ledger.complete(claim, 0, [])


@pytest.mark.usefixtures("sources")
class TestTasks:
    def test_more_chunks_than_airflow_maps_are_refused_before_anything_is_written(
        self, warehouse: Target, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "3")
        with pytest.raises(AirflowFailException, match="has 5 chunks to run, more than the 3 that Airflow"):
            Tasks().plan()
        with warehouse.connect(5) as session:
            assert not Ledger(session, warehouse).exists()
        # What is done already need not be mapped.
        monkeypatch.delenv("AIRFLOW__CORE__MAX_MAP_LENGTH")
        before = Tasks("before")
        for index, part in enumerate(before.plan()[:2]):
            before.chunk(part, index)
        monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "3")
        assert [part["chunks"][0][0] for part in Tasks().plan()] == ["000002", "000003", "000004"]

    def test_plan_chunks_report(
        self, warehouse: Target, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
    ) -> None:
        tasks = Tasks()
        with caplog.at_level("INFO"):
            mapped = tasks.plan()
            assert [part["interval_label"] for part in mapped][:2] == [
                "2026-01-01 → 2026-01-02",
                "2026-01-02 → 2026-01-03",
            ]
            assert mapped[2] == {
                "backfill_id": BACKFILL_ID,
                "chunks": [["000002", "2026-01-03T00:00:00+00:00", "2026-01-04T00:00:00+00:00"]],
                "total": 5,
                "interval_label": "2026-01-03 → 2026-01-04",
                "start": "2026-01-03T00:00:00+00:00",
                "end": "2026-01-04T00:00:00+00:00",
            }
            results = [tasks.chunk(part, index) for index, part in enumerate(mapped)]
            summary = tasks.report()
        # Airflow 3 does not log through the standard library.
        said = caplog.text + capsys.readouterr().out
        line = "chunk 3/5 [2026-01-03T00:00:00+00:00 → 2026-01-04T00:00:00+00:00): "
        assert f"{line}running (run_id=559264ef1526bd83)" in said
        assert f"{line}completed (1 records)" in said
        tally = f"Backfill {BACKFILL_ID}: 5 completed, 0 skipped, 0 claimed elsewhere (5 chunks)"
        assert tally in said
        assert summary == {
            "backfill_id": BACKFILL_ID,
            "completed": 5,
            "skipped": 0,
            "claimed_elsewhere": 0,
            "failed": 0,
            "pending": 0,
            "total": 5,
            "records": 5,
        }
        assert results[2] | {"bytes": 0, "seconds": 0} == {
            "backfill_id": BACKFILL_ID,
            "chunk_ids": ["000002"],
            "chunk": "2026-01-03 → 2026-01-04",
            "status": "completed",
            "completed": 1,
            "skipped": 0,
            "rows": 1,
            "bytes": 0,
            "dropped": 0,
            "rejected": 0,
            "warnings": 0,
            "seconds": 0,
        }
        assert results[2]["bytes"] > 0
        assert results[2]["seconds"] > 0
        assert ids_in(warehouse) == [1, 2, 3, 4, 5]
        row = rows_of(warehouse)[2]
        assert (row.dag_id, row.dag_run_id, row.task_id, row.map_index) == (
            "a_dag",
            "a_run",
            "events.chunk",
            2,
        )

    def test_the_next_dag_run_maps_what_is_left(self, warehouse: Target) -> None:
        first = Tasks("first")
        for index, part in enumerate(first.plan()[:2]):
            first.chunk(part, index)
        with pytest.raises(AirflowFailException, match="3 of 5 chunks not completed") as caught:
            first.report()
        left = "chunks 3 to 5 of 5 [2026-01-03T00:00:00+00:00 → 2026-01-06T00:00:00+00:00): pending"
        assert left in str(caught.value).splitlines()[1]
        assert first.xcoms["events.report", "return_value"]["pending"] == 3
        second = Tasks("second")
        mapped = second.plan()
        assert [part["chunks"][0][0] for part in mapped] == ["000002", "000003", "000004"]
        for index, part in enumerate(mapped):
            second.chunk(part, index)
        summary = second.report()
        assert (summary["completed"], summary["skipped"]) == (3, 2)
        assert ids_in(warehouse) == [1, 2, 3, 4, 5]
        third = Tasks("third")
        assert third.plan() == []
        assert (third.report()["completed"], third.report()["skipped"]) == (0, 5)

    def test_one_dag_run_never_changes_its_list(self, warehouse: Target) -> None:
        tasks = Tasks("second")
        earlier = Tasks("first")
        earlier.chunk(earlier.plan()[0])
        mapped = tasks.plan()
        assert [part["chunks"][0][0] for part in mapped] == ["000001", "000002", "000003", "000004"]
        # Its own, another run's, and somebody's who is no Airflow at all.
        tasks.chunk(mapped[0])
        earlier.chunk(mapped[1])
        never_read(warehouse, BACKFILL_ID, "000003")
        assert tasks.plan() == mapped
        assert tasks.chunk(mapped[2], 2)["status"] == "skipped"
        for index, part in enumerate(mapped):
            tasks.chunk(part, index)
        assert tasks.plan() == mapped
        summary = tasks.report()
        assert (summary["completed"], summary["skipped"]) == (2, 3)
        # A new run is not bound to it, and a list that was empty stays so.
        assert Tasks("third").plan() == []
        with warehouse.connect(5) as session:
            Ledger(session, warehouse).restate(BACKFILL_ID, "000000")
        assert Tasks("third").plan() == []
        assert tasks.plan() == mapped

    def test_another_window_in_the_same_dag_run_has_its_own_list(self, warehouse: Target) -> None:
        tasks = Tasks()
        assert len(tasks.plan()) == 5
        assert len(tasks.plan(end="2026-01-03T00:00:00Z")) == 2

    def test_an_attempt_that_fails(self, warehouse: Target, tmp_path: Path) -> None:
        outage = tmp_path / "outage"
        outage.touch()
        tasks = Tasks(source_kwargs={"outage": str(outage)})
        mapped = tasks.plan()
        message = "RuntimeError: the API is down"
        with pytest.raises(AirflowException, match=message) as caught:
            tasks.chunk(mapped[2], 2, try_number=1, max_tries=1)
        assert not isinstance(caught.value, AirflowFailException)
        row = rows_of(warehouse)[2]
        assert (row.status, row.will_retry, row.error) == ("failed", True, "RuntimeError: the API is down")
        outage.touch()
        with pytest.raises(AirflowException):
            tasks.chunk(mapped[2], 2, try_number=2, max_tries=1)
        assert rows_of(warehouse)[2].will_retry is False
        with pytest.raises(AirflowFailException) as report:
            tasks.report()
        line = "chunk 3/5 [2026-01-03T00:00:00+00:00 → 2026-01-04T00:00:00+00:00): "
        assert f"{line}failed (RuntimeError: the API is down)" in str(report.value)
        assert tasks.chunk(mapped[2], 2, try_number=3, max_tries=2)["status"] == "completed"
        assert rows_of(warehouse)[2].attempt == 3

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"start": "2026-01-01T00:00:00"}, "is timezone-naive"),
            ({"end": WINDOW["start"]}, "empty window"),
            ({"chunk": "1y"}, "unknown unit"),
            ({"chunk": "1m", "end": "2036-01-01"}, "max_chunks"),
            ({"source": "nowhere:page_views"}, "was not found"),
            ({"dataset_name": " "}, "is empty"),
            ({"conn_id": None}, "pass one of them"),
        ],
    )
    def test_refusals_burn_no_retries_and_write_nothing(
        self, warehouse: Target, changes: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(AirflowFailException, match=message):
            Tasks().plan(**changes)
        with warehouse.connect(5) as session:
            assert not Ledger(session, warehouse).exists()

    def test_a_plan_for_another_database_leaves_the_attempt_alone(
        self, warehouse: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import page_view_source  # type: ignore[import-not-found]

        tasks = Tasks()
        mapped = tasks.plan()
        operator = ChunkedBackfillOperator(task_id="chunk", **tasks.source, **mapped[0])

        def source() -> Any:
            # The same source and dataset on the same machine: what it has there is not left over.
            monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", duckdb_connection(tmp_path / "other.duckdb"))
            Tasks().plan()
            return page_view_source.page_views()

        operator.source = source
        assert run_task(operator, tasks.ti("chunk"))["status"] == "completed"
        assert ids_in(warehouse) == [1]

    def test_a_source_that_breaks_later_burns_no_retries(self, warehouse: Target, sources: Path) -> None:
        tasks = Tasks()
        mapped = tasks.plan()
        (sources / "broken.py").write_text("raise ValueError('no key')")
        broken = ChunkedBackfillOperator(
            task_id="chunk", **{**tasks.source, **mapped[0], "source": "broken:x"}
        )
        with pytest.raises(AirflowFailException, match="failed to import: no key"):
            run_task(broken, tasks.ti("chunk", max_tries=3))
        row = rows_of(warehouse)[0]
        assert (row.status, row.will_retry) == ("failed", False)

    def test_on_kill_gives_the_chunk_back(self, warehouse: Target) -> None:
        tasks = Tasks(source_kwargs={})
        [first, *_] = tasks.plan()
        operator = ChunkedBackfillOperator(task_id="chunk", **tasks.source, **first)
        seen: list[tuple[str, str | None]] = []

        def source() -> Any:
            # What Airflow's handler does while the attempt runs.
            for _ in range(2):
                operator.on_kill()
                row = rows_of(warehouse)[0]
                seen.append((row.status, row.error))
            raise RuntimeError("went on")

        operator.source = source
        with pytest.raises(AirflowException):
            run_task(operator, tasks.ti("chunk"))
        assert seen == [("failed", "the task was told to stop")] * 2
        assert tasks.chunk(first)["status"] == "completed"

"""The operators against real databases: without a scheduler, and as DAG runs through ``dag.test()``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.records import ChunkRow
from airflow_provider_backfill.engine.runner import this_claimant
from airflow_provider_backfill.hooks.backfill import BackfillHook
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.operators.plan import BackfillPlanOperator
from airflow_provider_backfill.operators.report import BackfillReportOperator
from airflow_provider_backfill.version_compat import AirflowException, AirflowFailException
from tests.support.tasks import FakeTaskInstance, duckdb_connection, postgres_connection, run_task

WINDOW = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-06T00:00:00Z"}
BACKFILL_ID = "d7a7c6e21e0d8ecb"
SOURCE = """
import os
from datetime import UTC, datetime

import dlt


@dlt.source(name="web_events")
def page_views(outage=None, pause=0.0):
    @dlt.resource(name="page_views")
    def rows(at=dlt.sources.incremental("at", initial_value=datetime(2020, 1, 1, tzinfo=UTC))):
        if outage and at.initial_value.day == 3 and os.path.exists(outage):
            os.remove(outage)
            raise RuntimeError("the API is down")
        if pause:
            import time
            open(outage, "w").close()
            time.sleep(pause)
        for number in range(1, 7):
            yield {"id": number, "at": datetime(2026, 1, number, 12, tzinfo=UTC)}

    return rows
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the path with ``page_view_source.py``."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "page_view_source.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("page_view_source", None)


@pytest.fixture(params=["duckdb", "postgres"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """The Airflow connection ``warehouse``, to an empty database of each kind; where its dataset stands."""
    if request.param == "duckdb":
        connection = duckdb_connection(tmp_path / "web.duckdb")
    else:
        connection = postgres_connection(request.getfixturevalue("postgres_url"))
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", connection)
    monkeypatch.setenv("AIRFLOW__CHUNKED_BACKFILL__WORK_DIR", str(tmp_path / "work"))
    return BackfillHook(conn_id="warehouse", dataset_name="web_raw").target


class Tasks:
    """The three tasks of a group, run by hand in one DAG run."""

    def __init__(self, run_id: str = "a_run", **arguments: Any) -> None:
        self.run_id = run_id
        self.xcoms: dict[tuple[str, str], Any] = {}
        self.target = {"conn_id": "warehouse", "dataset_name": "web_raw"}
        self.source = {"source": "page_view_source:page_views", **self.target, **arguments}

    def ti(self, name: str, **changes: Any) -> FakeTaskInstance:
        return FakeTaskInstance(task_id=f"events.{name}", run_id=self.run_id, xcoms=self.xcoms, **changes)

    def plan(self, **changes: Any) -> list[dict[str, Any]]:
        arguments = {**self.source, **WINDOW, "chunk": "1d", **changes}
        planned = run_task(BackfillPlanOperator(task_id="plan", **arguments), self.ti("plan"))
        return json.loads(json.dumps(planned))

    def chunk(self, mapped: dict[str, Any], index: int = 0, **changes: Any) -> dict[str, Any]:
        operator = ChunkedBackfillOperator(task_id="chunk", **self.source, **mapped)
        result = run_task(operator, self.ti("chunk", map_index=index, **changes))
        return json.loads(json.dumps(result))

    def report(self) -> dict[str, Any]:
        operator = BackfillReportOperator(task_id="report", plan_task_id="events.plan", **self.target)
        result: dict[str, Any] = run_task(operator, self.ti("report"))
        return result


def rows_of(target: Target) -> list[ChunkRow]:
    with target.connect(5) as session:
        return Ledger(session, target).dataset_chunks()


def ids_in(target: Target) -> list[int]:
    with target.connect(5) as session:
        return [number for (number,) in session.execute("SELECT id FROM web_raw.page_views ORDER BY id")]


def never_read(target: Target, backfill_id: str, chunk_id: str) -> None:
    """Complete a chunk as somebody else would, without its rows."""
    with target.connect(5) as session:
        ledger = Ledger(session, target)
        claim = ledger.claim(ledger.chunk(backfill_id, chunk_id), this_claimant(), 60)
        ledger.complete(claim, 0, [])


@pytest.mark.usefixtures("sources")
class TestTasks:
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
                "chunk_id": "000002",
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
            "chunk_id": "000002",
            "chunk": "2026-01-03 → 2026-01-04",
            "status": "completed",
            "rows": 1,
            "bytes": 0,
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
        assert str(caught.value).count("): pending") == 3
        assert first.xcoms["events.report", "return_value"]["pending"] == 3
        second = Tasks("second")
        mapped = second.plan()
        assert [part["chunk_id"] for part in mapped] == ["000002", "000003", "000004"]
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
        assert [part["chunk_id"] for part in mapped] == ["000001", "000002", "000003", "000004"]
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

    def test_a_retry_waits_for_the_lease_of_a_killed_worker(self, warehouse: Target) -> None:
        tasks = Tasks()
        mapped = tasks.plan()
        with warehouse.connect(5) as session:
            ledger = Ledger(session, warehouse)
            ledger.claim(ledger.chunk(BACKFILL_ID, "000000"), this_claimant(), 2)
        assert tasks.chunk(mapped[0])["status"] == "completed"
        assert rows_of(warehouse)[0].attempt == 2

    def test_a_chunk_that_somebody_holds_for_too_long(
        self, warehouse: Target, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CHUNKED_BACKFILL__WAIT_TIMEOUT_SECONDS", "0.1")
        tasks = Tasks()
        mapped = tasks.plan()
        with warehouse.connect(5) as session:
            ledger = Ledger(session, warehouse)
            ledger.claim(ledger.chunk(BACKFILL_ID, "000000"), this_claimant(), 60)
        with pytest.raises(AirflowException, match="held by") as caught:
            tasks.chunk(mapped[0])
        assert not isinstance(caught.value, AirflowFailException)
        with pytest.raises(AirflowFailException, match=r"chunk 1/5 .*: held by "):
            tasks.report()

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


@pytest.mark.usefixtures("sources")
class TestAlone:
    def operator(self, **arguments: Any) -> ChunkedBackfillOperator:
        return ChunkedBackfillOperator(
            task_id="events",
            source="page_view_source:page_views",
            conn_id="warehouse",
            dataset_name="web_raw",
            **arguments,
        )

    def test_it_loads_the_data_interval(self, warehouse: Target) -> None:
        from datetime import UTC, datetime

        interval: dict[str, Any] = {
            "data_interval_start": datetime(2026, 1, 3, tzinfo=UTC),
            "data_interval_end": datetime(2026, 1, 4, tzinfo=UTC),
        }
        result = run_task(self.operator(), **interval)
        assert (result["rows"], result["chunk"]) == (1, "2026-01-03 → 2026-01-04")
        [row] = rows_of(warehouse)
        assert (row.chunk_size, row.chunk_id, row.map_index) == ("1d", "000000", None)
        assert ids_in(warehouse) == [3]
        # Again, in a run that knows nothing of the first.
        again = FakeTaskInstance(task_id="events", run_id="another")
        assert run_task(self.operator(), again, **interval)["status"] == "skipped"

    def test_it_is_labelled_by_its_exact_length(self, warehouse: Target) -> None:
        run_task(self.operator(start="2026-01-01T00:00:00Z", end="2026-01-01T13:30:00Z"))
        [row] = rows_of(warehouse)
        assert row.chunk_size == "810m"

    def test_a_size_that_cuts_is_refused(self, warehouse: Target) -> None:
        with pytest.raises(AirflowFailException, match="cuts the window into 5 chunks, and a task runs one"):
            run_task(self.operator(chunk="1d", **WINDOW))

    def test_a_retry_of_what_is_done(self, warehouse: Target) -> None:
        window = {"start": "2026-01-03", "end": "2026-01-04"}
        run_task(self.operator(**window))

        def explodes() -> Any:
            raise AssertionError("the source was looked at")

        retry = self.operator(**window, retries=2)
        retry.source = explodes
        ti = FakeTaskInstance(task_id="events", try_number=2, max_tries=2)
        assert run_task(retry, ti)["status"] == "skipped"
        # Another interval, another task, and a cleared task are no retry of it.
        others: list[tuple[str, FakeTaskInstance]] = [
            ("2026-01-05", ti),
            ("2026-01-04", FakeTaskInstance(task_id="other", try_number=2, max_tries=2)),
            ("2026-01-04", FakeTaskInstance(task_id="events", try_number=2, max_tries=3)),
        ]
        for end, task in others:
            other = self.operator(start="2026-01-03", end=end, retries=2)
            other.source = explodes
            with pytest.raises(AssertionError):
                run_task(other, task)


@pytest.mark.usefixtures("sources")
def test_the_retry_of_a_completed_chunk_does_not_import_dlt(warehouse: Target) -> None:
    tasks = Tasks()
    mapped = tasks.plan()[2]
    tasks.chunk(mapped, 2)
    alone = {**tasks.source, "start": "2026-01-07", "end": "2026-01-08"}
    run_task(ChunkedBackfillOperator(task_id="alone", **alone))
    code = f"""
import subprocess
import sys
from airflow_provider_backfill import ChunkedBackfillOperator
from tests.support.tasks import FakeTaskInstance, run_task

ti = FakeTaskInstance(task_id="events.chunk", map_index=2, try_number=2, max_tries=2)
chunk = ChunkedBackfillOperator(task_id="chunk", retries=2, **{ {**tasks.source, **mapped}!r})
print(run_task(chunk, ti)["status"])
ti = FakeTaskInstance(task_id="alone", try_number=2, max_tries=2)
print(run_task(ChunkedBackfillOperator(task_id="alone", retries=2, **{alone!r}), ti)["status"])
print("page_view_source" in sys.modules, "dlt" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Airflow's log goes to stdout too.
    said = [line for line in done.stdout.splitlines() if line in {"skipped", "False False"}]
    assert said == ["skipped", "skipped", "False False"], done.stdout

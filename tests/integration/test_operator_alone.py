"""The operator by itself, a backfill of one chunk; and retries of what is done."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import AirflowFailException
from tests.support.tasks import WINDOW, FakeTaskInstance, Tasks, ids_in, rows_of, run_task


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

    def test_a_day_of_a_window_that_is_loaded_is_covered(self, warehouse: Target) -> None:
        tasks = Tasks()
        for index, mapped in enumerate(tasks.plan()):
            tasks.chunk(mapped, index)
        result = run_task(self.operator(start="2026-01-03", end="2026-01-04"))
        assert (result["status"], result["rows"]) == ("skipped", 0)
        # The days go on where the window ends.
        run_task(self.operator(start="2026-01-06", end="2026-01-07"))
        assert ids_in(warehouse) == [1, 2, 3, 4, 5, 6]

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

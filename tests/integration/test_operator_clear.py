"""Clearing: one chunk alone is loaded again, a whole DAG run is resumed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import AirflowException, AirflowFailException
from tests.support.tasks import FakeTaskInstance, Tasks, ids_in, rows_of, run_task

pytestmark = pytest.mark.usefixtures("sources")

RETRIES = 1
#: As Airflow counts (DESIGN, section 7): the first try, its retry, a clear after it, that one's retry.
FIRST = {"try_number": 1, "max_tries": 1}
RETRY = {"try_number": 2, "max_tries": 1}
CLEARED = {"try_number": 2, "max_tries": 2}
RETRY_OF_CLEARED = {"try_number": 3, "max_tries": 2}
CLEARED_AGAIN = {"try_number": 3, "max_tries": 3}

#: A source whose rows carry how often it was read.
COUNTING = """
import itertools
from datetime import UTC, datetime
from pathlib import Path

import dlt

READS = Path(__file__).with_suffix(".reads")


@dlt.source(name="web_events")
def page_views():
    @dlt.resource(name="page_views")
    def rows(at=dlt.sources.incremental("at", initial_value=datetime(2020, 1, 1, tzinfo=UTC))):
        with READS.open("a") as reads:
            reads.write(f"{at.start_value:%d} ")
        if READS.with_suffix(".down").exists():
            raise RuntimeError("the API is down")
        version = len(READS.read_text().split())
        for number in range(1, 7):
            yield {"id": number, "at": datetime(2026, 1, number, 12, tzinfo=UTC), "version": version}

    return rows
"""


class Counting:
    """The tasks of a DAG run over the source that counts."""

    def __init__(self, sources: Path, target: Target, **arguments: Any) -> None:
        (sources / "counting_source.py").write_text(COUNTING)
        # Of another test's directory.
        sys.modules.pop("counting_source", None)
        self._reads = sources / "counting_source.reads"
        self._reads.write_text("")
        self.down = sources / "counting_source.down"
        self.target = target
        self.tasks = Tasks(source="counting_source:page_views", retries=RETRIES, **arguments)

    def run(self) -> list[dict[str, Any]]:
        """All of it, for the first time."""
        mapped = self.tasks.plan()
        for index, part in enumerate(mapped):
            self.tasks.chunk(part, index, **FIRST)
        assert self.read() == ["01", "02", "03", "04", "05"]
        return mapped

    def read(self) -> list[str]:
        """The days that the source was asked for since this was asked last."""
        days = self._reads.read_text().split()
        new = days[getattr(self, "_seen", 0) :]
        self._seen = len(days)
        return new

    def versions(self) -> list[int]:
        with self.target.connect(10) as session:
            return [n for (n,) in session.execute("SELECT version FROM web_raw.page_views ORDER BY id")]


@pytest.fixture
def counting(sources: Path, warehouse: Target) -> Counting:
    return Counting(sources, warehouse)


def test_a_chunk_cleared_alone_is_loaded_again_and_replaced(counting: Counting) -> None:
    mapped = counting.run()
    result = counting.tasks.chunk(mapped[2], 2, **CLEARED)
    assert (result["status"], result["rows"]) == ("completed", 1)
    assert counting.read() == ["03"]
    assert ids_in(counting.target) == [1, 2, 3, 4, 5]
    assert counting.versions() == [1, 2, 6, 4, 5]
    # And once more.
    counting.tasks.chunk(mapped[2], 2, **CLEARED_AGAIN)
    assert counting.versions() == [1, 2, 7, 4, 5]
    assert [row.status for row in rows_of(counting.target)] == ["completed"] * 5


def test_a_plain_retry_of_a_completed_chunk_reads_nothing(counting: Counting) -> None:
    mapped = counting.run()
    assert counting.tasks.chunk(mapped[2], 2, **RETRY)["status"] == "skipped"
    assert counting.read() == []


def test_a_whole_run_that_is_cleared_reads_nothing_however_often(counting: Counting) -> None:
    mapped = counting.run()
    for tries in (CLEARED, CLEARED_AGAIN):
        assert counting.tasks.plan() == mapped
        results = [counting.tasks.chunk(part, index, **tries) for index, part in enumerate(mapped)]
        assert [result["status"] for result in results] == ["skipped"] * 5
    assert counting.read() == []
    # It last finished by finding its chunk completed, and the window was not planned since.
    assert counting.tasks.chunk(mapped[4], 4, try_number=4, max_tries=4)["status"] == "completed"
    assert counting.read() == ["05"]


def test_a_chunk_that_another_run_completed_is_loaded_again_when_it_is_cleared_alone(
    counting: Counting,
) -> None:
    mapped = counting.tasks.plan()
    other = Tasks(run_id="other", source="counting_source:page_views", retries=RETRIES)
    other.chunk(other.plan()[1], 1, **FIRST)
    assert counting.tasks.chunk(mapped[1], 1, **FIRST)["status"] == "skipped"
    assert counting.read() == ["02"]
    assert counting.tasks.chunk(mapped[1], 1, **CLEARED)["status"] == "completed"
    assert counting.read() == ["02"]
    assert ids_in(counting.target) == [2]


def test_until_the_new_version_is_published_the_old_one_stands(counting: Counting) -> None:
    mapped = counting.run()
    counting.down.touch()
    with pytest.raises(AirflowException, match="the API is down"):
        counting.tasks.chunk(mapped[2], 2, **CLEARED)
    assert counting.versions() == [1, 2, 3, 4, 5]
    assert rows_of(counting.target)[2].status == "failed"
    counting.down.unlink()
    # A plain retry goes on with it.
    assert counting.tasks.chunk(mapped[2], 2, **RETRY_OF_CLEARED)["status"] == "completed"
    assert counting.versions() == [1, 2, 7, 4, 5]


def test_on_clear_resume_turns_it_off(sources: Path, warehouse: Target) -> None:
    counting = Counting(sources, warehouse)
    mapped = counting.run()
    operator = ChunkedBackfillOperator(
        task_id="chunk", on_clear="resume", **counting.tasks.source, **mapped[2]
    )
    ti = counting.tasks.ti("chunk", map_index=2, **CLEARED)
    assert run_task(operator, ti)["status"] == "skipped"
    assert counting.read() == []


def test_another_word_for_on_clear_is_refused(counting: Counting) -> None:
    mapped = counting.run()
    operator = ChunkedBackfillOperator(task_id="chunk", on_clear="redo", **counting.tasks.source, **mapped[2])
    with pytest.raises(AirflowFailException, match="on_clear 'redo' is unknown; pass restate or resume"):
        run_task(operator, counting.tasks.ti("chunk", map_index=2, **CLEARED))
    assert counting.versions() == [1, 2, 3, 4, 5]


def test_a_task_by_itself_is_loaded_again_when_it_is_cleared(counting: Counting) -> None:
    def ti(**tries: Any) -> FakeTaskInstance:
        return FakeTaskInstance(task_id="events", **tries)

    operator = ChunkedBackfillOperator(
        task_id="events", start="2026-01-03", end="2026-01-04", **counting.tasks.source
    )
    run_task(operator, ti(**FIRST))
    assert run_task(operator, ti(**RETRY))["status"] == "skipped"
    assert counting.versions() == [1]
    assert run_task(operator, ti(try_number=3, max_tries=3))["status"] == "completed"
    assert counting.versions() == [2]
    # Another DAG run over the same interval is a resume, also where it is that run's second try.
    assert run_task(operator, ti(run_id="other", **CLEARED))["status"] == "skipped"


def test_a_part_of_what_another_window_has_loaded_is_restated_by_reload_or_refused(
    counting: Counting,
) -> None:
    """It would be found covered otherwise, and nothing be loaded."""
    counting.run()
    asked = {"start": "2026-01-02", "end": "2026-01-04", "restate": True}
    part = Tasks(run_id="part", **{**counting.tasks.source, "overlap": "refuse"})
    before = rows_of(counting.target)
    for changes in ({}, {"overlap": "reload", "chunk": "12h"}):
        with pytest.raises(AirflowFailException, match=f"backfill {before[0].backfill_id} has completed 2 "):
            part.plan(**asked, **changes)
    # Also once a run without restate has recorded it as covered.
    assert Tasks(run_id="resume", **counting.tasks.source).plan(**{**asked, "restate": False}) == []
    with pytest.raises(AirflowFailException, match='pass overlap="reload" too'):
        part.plan(**asked)
    assert [row.attempt for row in rows_of(counting.target) if row.attempt] == [1] * 5

    reload = Tasks(run_id="part", **{**counting.tasks.source, "overlap": "reload"})
    mapped = reload.plan(**asked)
    assert [reload.chunk(each, index, **FIRST)["status"] for index, each in enumerate(mapped)] == [
        "completed",
        "completed",
    ]
    assert counting.versions() == [1, 6, 7, 4, 5]
    # Cleared as a whole, it is a resume.
    assert reload.plan(**asked) == mapped
    assert [reload.chunk(each, index, **FIRST)["status"] for index, each in enumerate(mapped)] == [
        "skipped",
        "skipped",
    ]


def test_rows_that_cannot_be_told_from_others_are_refused_and_stay(sources: Path, warehouse: Target) -> None:
    (sources / "arrow_source.py").write_text(
        """
from datetime import UTC, datetime

import dlt
import pyarrow


@dlt.source(name="web_events")
def page_views():
    @dlt.resource(selected=False)
    def days(at=dlt.sources.incremental("at", initial_value=datetime(2020, 1, 1, tzinfo=UTC))):
        yield from ({"id": day, "at": datetime(2026, 1, day, tzinfo=UTC)} for day in (1, 2))

    @dlt.transformer(name="page_views", data_from=days)
    def details(row):
        yield pyarrow.table({"id": [row["id"]]})

    return days, details
"""
    )
    sys.modules.pop("arrow_source", None)
    tasks = Tasks(source="arrow_source:page_views", retries=RETRIES)
    mapped = tasks.plan()
    tasks.chunk(mapped[0], 0, **FIRST)
    with pytest.raises(AirflowFailException, match="table page_views cannot be loaded again: it has no col"):
        tasks.chunk(mapped[0], 0, **CLEARED)
    assert ids_in(warehouse) == [1]
    assert rows_of(warehouse)[0].status == "completed"

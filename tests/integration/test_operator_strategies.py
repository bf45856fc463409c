"""Strategies in Airflow: several windows in one mapped list, and a report of them all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.version_compat import AirflowFailException
from tests.support.tasks import Tasks, ids_in, rows_of

pytestmark = pytest.mark.usefixtures("sources")


def bounds(first: int, last: int) -> dict[str, str]:
    return {"start": f"2026-01-{first:02d}", "end": f"2026-01-{last:02d}"}


def load(first: int, last: int) -> str:
    """Load days of January in a DAG run of their own; returns the backfill's id."""
    tasks = Tasks(run_id=f"days {first} to {last}")
    for index, mapped in enumerate(tasks.plan(**bounds(first, last))):
        tasks.chunk(mapped, index)
    return str(tasks.report()["backfill_id"])


def labels(mapped: list[dict[str, Any]]) -> list[str]:
    return [part["interval_label"] for part in mapped]


def run_all(tasks: Tasks, mapped: list[dict[str, Any]]) -> list[str]:
    return [tasks.chunk(part, index)["status"] for index, part in enumerate(mapped)]


def test_all_gaps_are_mapped_in_order_and_reported_together(warehouse: Target) -> None:
    load(2, 3)
    load(4, 5)
    tasks = Tasks(run_id="gaps")
    asked = {"strategy": "gaps", **bounds(1, 7)}
    mapped = tasks.plan(**asked)
    days = ["01-01 → 2026-01-02", "01-03 → 2026-01-04", "01-05 → 2026-01-06", "01-06 → 2026-01-07"]
    assert labels(mapped) == [f"2026-{day}" for day in days]
    ids = list(dict.fromkeys(part["backfill_id"] for part in mapped))
    assert [part["total"] for part in mapped] == [1, 1, 2, 2]
    said = r"4 of 4 chunks not completed \(4 pending\):\n- chunk 1/1 \[2026-01-01"
    with pytest.raises(AirflowFailException, match=said):
        tasks.report()
    assert run_all(tasks, mapped) == ["completed"] * 4
    assert ids_in(warehouse) == [1, 2, 3, 4, 5, 6]
    report = tasks.report()
    assert report["backfill_id"] == ids
    assert (report["completed"], report["total"], report["records"]) == (4, 4, 4)
    # Cleared: nothing is missing now, and the list is the same.
    assert tasks.plan(**asked) == mapped
    assert run_all(tasks, mapped) == ["skipped"] * 4
    assert tasks.report() == report


def test_the_list_stays_when_another_run_has_changed_what_is_covered(warehouse: Target) -> None:
    tasks = Tasks(run_id="gaps")
    load(3, 4)
    asked = {"strategy": "gaps", **bounds(1, 6), "chunks_per_task": 2}
    mapped = tasks.plan(**asked)
    assert labels(mapped) == ["2026-01-01 → 2026-01-03", "2026-01-04 → 2026-01-06"]
    load(4, 5)
    assert tasks.plan(**asked) == mapped
    assert run_all(tasks, mapped) == ["completed"] * 2
    assert ids_in(warehouse) == [1, 2, 3, 4, 5]
    assert tasks.report()["skipped"] == 1
    # Another DAG run chooses anew, and so does this one if it asks for something else.
    assert Tasks(run_id="later").plan(**asked) == []
    assert labels(tasks.plan(**{**asked, **bounds(1, 7)})) == ["2026-01-06 → 2026-01-07"]
    assert tasks.plan(**asked) == mapped


def test_backward_begins_with_the_latest_window(warehouse: Target) -> None:
    load(3, 4)
    mapped = Tasks().plan(strategy="gaps", order="backward", **bounds(1, 6))
    assert [label[8:10] for label in labels(mapped)] == ["05", "04", "02", "01"]


def test_nothing_to_do_is_reported_and_remembered(warehouse: Target) -> None:
    asked = {"strategy": "gaps", **bounds(1, 3)}
    load(1, 3)
    tasks = Tasks(run_id="gaps")
    assert tasks.plan(**asked) == []
    report = tasks.report()
    assert (report["backfill_id"], report["total"]) == ([], 0)
    before = rows_of(warehouse)
    # Somebody wants a day again.
    tasks.chunk(Tasks(run_id="again").plan(**bounds(1, 3), restate=True)[0])
    assert len(rows_of(warehouse)) == len(before)
    assert tasks.plan(**asked) == []
    assert Tasks(run_id="virgin", source_name="other").plan(strategy="since_failed") == []


def test_lookback_maps_the_chunks_before_a_new_window(warehouse: Target) -> None:
    first = load(1, 4)
    tasks = Tasks(run_id="gaps")
    asked = {"strategy": "gaps", "lookback": "2", **bounds(1, 6), "end": "2026-01-06"}
    mapped = tasks.plan(**asked)
    assert [label[8:10] for label in labels(mapped)] == ["02", "03", "04", "05"]
    assert [part["backfill_id"] == first for part in mapped] == [True, True, False, False]
    assert [part["total"] for part in mapped] == [3, 3, 2, 2]
    with pytest.raises(AirflowFailException, match="4 of 4 chunks not completed"):
        tasks.report()
    assert run_all(tasks, mapped) == ["completed"] * 4
    assert ids_in(warehouse) == [1, 2, 3, 4, 5]
    assert tasks.report()["completed"] == 4
    assert tasks.plan(**asked) == mapped
    assert run_all(tasks, mapped) == ["skipped"] * 4
    attempts = [row.attempt for row in rows_of(warehouse)]
    assert attempts == [1, 2, 2, 1, 1]
    # A chunk of the lookback that is cleared alone is loaded again, as any.
    assert tasks.chunk(mapped[0], 0, try_number=2, max_tries=1)["status"] == "completed"


def test_forward_only_records_what_lies_before(warehouse: Target) -> None:
    tasks = Tasks()
    mapped = tasks.plan(strategy="forward_only", since="2026-01-04", **bounds(1, 6))
    assert len(mapped) == 2
    assert [(row.status, row.records_loaded) for row in rows_of(warehouse)] == [
        *[("completed", None)] * 3,
        *[("pending", None)] * 2,
    ]
    run_all(tasks, mapped)
    assert tasks.report()["total"] == 2
    assert ids_in(warehouse) == [4, 5]


def test_without_bounds_a_strategy_looks_at_the_whole_history(sources: Path, warehouse: Target) -> None:
    tasks = Tasks()
    # The data interval of the DAG run is the window's default, and only that one's.
    mapped = tasks.plan(strategy="full", start=None, end="2021-01-01", chunk="1mo", grain="month")
    assert (labels(mapped)[0], len(mapped)) == ("2020-01-01 → 2020-02-01", 12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "all"}, "strategy 'all' is unknown; pass full or window or gaps"),
        ({"lookback": "-1"}, "lookback '-1' is unknown; pass a whole number from 0"),
        ({"grain": "year"}, "grain 'year' is unknown; pass hour or day"),
        ({"strategy": "forward_only", "since": "None"}, "was not told before which instant"),
    ],
)
def test_other_words_are_refused(warehouse: Target, changes: dict[str, str], message: str) -> None:
    with pytest.raises(AirflowFailException, match=message):
        Tasks().plan(**changes)
    assert rows_of(warehouse) == []

"""Plans above a threshold in Airflow: the plan task fails at once, unless the DAG run has confirmed it."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import DAG, AirflowFailException
from tests.support.ledgers import slowed
from tests.support.tasks import Tasks, rows_of

pytestmark = [
    pytest.mark.usefixtures("sources"),
    # What the database is, a threshold does not know.
    pytest.mark.parametrize("warehouse", ["duckdb"], indirect=True),
]

SETTING = "AIRFLOW__CHUNKED_BACKFILL__"
FIRST_TWO = {"start": "2026-01-01", "end": "2026-01-03"}
ABOVE = r"the estimate \(about 3 h; 3 rows; from 2 chunks\) is above max_estimated_hours = 2; confirm it with"


@pytest.fixture
def known(warehouse: Target) -> Target:
    """Two days are loaded, an hour each."""
    tasks = Tasks(run_id="before")
    for index, mapped in enumerate(tasks.plan(**FIRST_TWO, max_estimated_hours=1e-9)):
        tasks.chunk(mapped, index)
    slowed(warehouse, 3_600)
    return warehouse


def test_what_takes_too_long_fails_at_once_and_leaves_nothing(
    known: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows_of(known)
    asked: tuple[tuple[str, Any], ...] = (("2", None), ("2", "None"), ("", 2), ("", "2.0"), ("1000", 2))
    for setting, argument in asked:
        monkeypatch.setenv(f"{SETTING}MAX_ESTIMATED_HOURS", setting)
        # No retry, since somebody has to decide.
        with pytest.raises(AirflowFailException, match=ABOVE):
            Tasks().plan(max_estimated_hours=argument, confirm="False")
    assert rows_of(known) == before
    assert len(Tasks().plan(confirm="True", max_estimated_hours=2)) == 3


def test_what_a_dag_run_has_mapped_is_not_asked_about_again(known: Target) -> None:
    first, second = Tasks(run_id="first"), Tasks(run_id="second")
    mapped = first.plan(max_estimated_hours=3)
    slowed(known, 7_200)
    assert first.plan(max_estimated_hours=3) == mapped
    with pytest.raises(AirflowFailException, match="about 6 h"):
        second.plan(max_estimated_hours=3)
    assert len(second.plan(max_estimated_hours=3, max_active_chunks=3)) == 3


def test_what_is_loaded_again_counts(known: Target, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AirflowFailException, match="about 2 h; 2 rows"):
        Tasks().plan(**FIRST_TWO, restate=True, max_estimated_hours=1)
    assert {row.status for row in rows_of(known)} == {"completed"}
    caplog.set_level("INFO")
    assert len(Tasks().plan(**FIRST_TWO, restate=True, max_estimated_hours=1, confirm=True)) == 2


def test_windows_of_a_strategy_count_together(
    known: Target, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    last = Tasks(run_id="last")
    last.chunk(last.plan(start="2026-01-04", end="2026-01-05")[0])
    slowed(known, 3_600)
    gaps = {"strategy": "gaps", "start": "2026-01-01", "end": "2026-01-06", "max_estimated_hours": 1}
    with pytest.raises(AirflowFailException, match="about 2 h; 2 rows"):
        Tasks().plan(**gaps)
    caplog.set_level("INFO")
    assert len(Tasks().plan(**gaps, confirm=True)) == 2
    said = caplog.text + capsys.readouterr().out
    assert "together: about 2 h; 2 rows; from 3 chunks; above max_estimated_hours = 1" in said


def test_more_chunks_than_max_chunks_are_confirmed_likewise(
    warehouse: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{SETTING}MAX_CHUNKS", "4")
    with pytest.raises(AirflowFailException, match="into 5 chunks, more than max_chunks = 4"):
        Tasks().plan()
    assert rows_of(warehouse) == []
    assert len(Tasks().plan(confirm=True)) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"confirm": "perhaps"}, "confirm 'perhaps' is unknown; pass true or false"),
        (
            {"max_estimated_hours": "-1"},
            "max_estimated_hours '-1' is unknown; pass a number of hours greater",
        ),
        ({"max_estimated_hours": "inf"}, "max_estimated_hours 'inf' is unknown"),
        ({"max_estimated_hours": "8h"}, "max_estimated_hours '8h' is unknown"),
    ],
)
def test_other_words_are_refused(warehouse: Target, changes: dict[str, str], message: str) -> None:
    with pytest.raises(AirflowFailException, match=message):
        Tasks().plan(**changes)


@pytest.mark.usefixtures("warehouse")
def test_the_group_gives_both_to_its_plan() -> None:
    with DAG(dag_id="long", schedule=None):
        group = ChunkedBackfillOperator.expand_window(
            task_id="views",
            source="page_view_source:page_views",
            conn_id="warehouse",
            dataset_name="web_raw",
            chunk="1d",
            confirm="{{ params.confirm }}",
            max_estimated_hours=8,
        )
    plan: Any = group.children["views.plan"]
    assert (plan.confirm, plan.max_estimated_hours) == ("{{ params.confirm }}", 8)
    assert {"confirm", "max_estimated_hours"} <= set(plan.template_fields)

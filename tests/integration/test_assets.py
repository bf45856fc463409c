"""What the events of outlets say, and when they say it."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Asset, AssetAlias

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import AirflowFailException
from tests.support.tasks import BACKFILL_ID, FakeTaskInstance, Tasks, context_of, run_task

PAGE_VIEWS = Asset(uri="warehouse://web_raw/page_views")
REPORTS = Asset(uri="warehouse://web_raw/reports")
ALIAS = AssetAlias("any_views")
OUTLETS = [PAGE_VIEWS, REPORTS, ALIAS]

pytestmark = pytest.mark.usefixtures("sources", "warehouse")


@pytest.fixture
def events() -> Any:
    """Airflow's own, which it reads once the task has succeeded."""
    return context_of(FakeTaskInstance(task_id="any"))["outlet_events"]


def test_the_report_says_what_window_is_covered(events: Any) -> None:
    tasks = Tasks()
    mapped = tasks.plan()
    for index, part in enumerate(mapped[:-1]):
        tasks.chunk(part, index)
    with pytest.raises(AirflowFailException, match="1 of 5 chunks not completed"):
        tasks.report(OUTLETS, outlet_events=events)
    assert len(events) == 0
    tasks.chunk(mapped[-1], len(mapped) - 1)
    # What the author says of an event stays.
    events[PAGE_VIEWS].extra["owner"] = "web"
    tasks.report(OUTLETS, outlet_events=events)
    expected = {
        "backfill_id": BACKFILL_ID,
        "start": "2026-01-01T00:00:00+00:00",
        "end": "2026-01-06T00:00:00+00:00",
        "chunks": 5,
        "records": 5,
    }
    assert events[PAGE_VIEWS].extra == {**expected, "owner": "web"}
    assert events[REPORTS].extra == expected
    assert len(events) == 2


def test_a_chunk_by_itself_says_its_own_interval(warehouse: Target, events: Any) -> None:
    operator = ChunkedBackfillOperator(
        task_id="events",
        source="page_view_source:page_views",
        conn_id="warehouse",
        dataset_name="web_raw",
        start="2026-01-02",
        end="2026-01-04",
        outlets=OUTLETS,
    )
    for status in ("completed", "skipped"):
        result = run_task(operator, outlet_events=events)
        assert result["status"] == status
        assert events[PAGE_VIEWS].extra == events[REPORTS].extra
        assert events[PAGE_VIEWS].extra == {
            "backfill_id": result["backfill_id"],
            "start": "2026-01-02T00:00:00+00:00",
            "end": "2026-01-04T00:00:00+00:00",
            "chunks": 1,
            "records": 2,
        }
        events[PAGE_VIEWS].extra.clear()
        events[REPORTS].extra.clear()

"""What a plan is refused for by the ledger, and what covers its chunks, on real databases."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from airflow_provider_backfill.exceptions import OverlapError, PlanConflictError
from tests.support.ledgers import opened, plan, seeded, sql, take

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("chunk_size", "24h", "chunk_size is '24h' in the ledger and '1d' here"),
        ("source_section", "other", "source_section is 'other' in the ledger and 'web_events' here"),
        ("resource_name", "views", "resource_name is 'views' in the ledger and None here"),
    ],
)
def test_a_stored_plan_with_other_inputs_is_refused(target, column, value, said):
    backfill = plan()
    seeded(target, backfill)
    sql(target, f"UPDATE {{ledger}} SET {column} = :value WHERE chunk_id = '000003'", value=value)
    with opened(target) as ledger, pytest.raises(PlanConflictError) as caught:
        ledger.check(backfill)
    assert f"backfill d7a7c6e21e0d8ecb exists with different inputs ({said})" in str(caught.value)


def test_a_stored_plan_with_another_window_is_refused(target):
    backfill = plan()
    seeded(target, backfill)
    sql(target, "UPDATE {ledger} SET backfill_to = backfill_to + INTERVAL '1 second'")
    with opened(target) as ledger, pytest.raises(PlanConflictError) as caught:
        ledger.check(backfill)
    assert list(caught.value.differences) == ["backfill_to"]
    stored, given = caught.value.differences["backfill_to"]
    assert isinstance(stored, datetime)
    assert isinstance(given, datetime)
    assert stored - given == timedelta(seconds=1)


def standings(ledger, wanted):
    return [str(each.standing) for each in ledger.coverage(wanted)]


def test_chunks_that_another_backfill_completed_count_for_those_of_a_plan(target):
    done, wanted = plan(4), plan(5, size="2d", start="2026-01-03")
    seeded(target, done)
    with opened(target) as ledger:
        ledger.complete(take(ledger, done, 1), 1, ["1"])
        assert standings(ledger, wanted) == ["due", "due", "due"]
        ledger.complete(take(ledger, done, 2), 1, ["1"])
        assert standings(ledger, wanted) == ["partly covered", "due", "due"]
        ledger.complete(take(ledger, done, 3), 1, ["1"])
        [first, *_] = ledger.coverage(wanted)
        assert (str(first.standing), first.covered_by) == ("covered", done.backfill_id)
        # Its own chunks, another source's, and what lies beside it do not count.
        assert set(standings(ledger, done)) == {"due"}
        assert set(standings(ledger, plan(2, start="2026-01-05"))) == {"due"}
        assert set(standings(ledger, plan(5, source="web_hours"))) == {"due"}


def test_chunks_of_another_backfill_that_are_not_completed_do_not_refuse_a_plan(target):
    other = plan(4, size="24h")
    seeded(target, other)
    with opened(target) as ledger:
        ledger.fail(take(ledger, other, 0), "no")
        take(ledger, other, 1)
        assert set(standings(ledger, plan(4))) == {"due"}


@pytest.mark.parametrize(
    ("done", "wanted", "standing"),
    [
        ("web_events:views", "web_events:clicks", "due"),
        ("web_events:views", "web_events:clicks,views", None),
        ("web_events:views", "web_events", None),
        ("web_events", "web_events:views", "covered"),
        ("web_events:clicks,views", "web_events:views", "covered"),
        ("web_events:views", "web_events:view", "due"),
    ],
)
def test_a_selection_of_resources_is_covered_by_one_that_has_them_all(target, done, wanted, standing):
    before = plan(2, source=done)
    seeded(target, before)
    with opened(target) as ledger:
        ledger.complete(take(ledger, before), 1, ["1"])
        if standing is None:
            with pytest.raises(OverlapError):
                ledger.coverage(plan(2, source=wanted, size="24h"))
        else:
            assert standings(ledger, plan(2, source=wanted, size="24h")) == [standing, "due"]

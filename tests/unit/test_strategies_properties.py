"""What holds of strategies for any coverage and window."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_backfill.engine.plan import make_plan
from airflow_provider_backfill.engine.strategies import Strategy
from airflow_provider_backfill.engine.window import missing
from tests.unit.strategies import Cells, completions, plans, utc
from tests.unit.test_coverage import done
from tests.unit.test_strategies import chosen

pytestmark = pytest.mark.unit

LATE = {"now": utc(2100, 1, 1)}


@given(st.data(), plans(), st.sampled_from([Strategy.WINDOW, Strategy.GAPS, Strategy.FORWARD_ONLY]))
def test_what_is_chosen_recorded_and_covered_makes_the_window(data, request, strategy):
    grains = [None] if request.window.interval.whole else [None, "hour", "day", "week"]
    asked = {"window": request.window, "grain": data.draw(st.sampled_from(grains)), "facts": LATE}
    completed = data.draw(completions(request))
    since = data.draw(st.sampled_from([chunk.interval.start for chunk in request.chunks]))
    (window,) = chosen("window", request.size, **asked).windows
    made = chosen(strategy, request.size, completed, **asked, since=since)
    parts = [[each.interval for each in some] for some in ([window], made.windows, made.done)]
    assert all(sorted(each) == each for each in parts)
    covered = [each.interval for each in completed]
    cells = Cells(*parts, covered)
    counted = [cells.of(each) for each in parts]
    everything, new, recorded = map(set, counted)
    assert [len(everything), len(new), len(recorded)] == [len(each) for each in counted]
    old = set(cells.of(covered)) & everything
    assert new | recorded | old == everything
    assert not recorded & (new | old)
    if strategy == Strategy.GAPS:
        assert not new & old


@given(st.data(), plans(), st.sampled_from([None, "day"]))
def test_gaps_planned_again_are_the_same_until_they_are_done(data, request, grain):
    asked = {"window": request.window, "grain": None if request.window.interval.whole else grain}
    completed = data.draw(completions(request))
    facts: dict[str, Any] = dict(LATE)
    first = [
        make_plan("web_events", each, request.size)
        for each in chosen("gaps", request.size, completed, **asked, facts=facts).windows
    ]
    ran = [chunk for each in first for chunk in done(each) if data.draw(st.booleans())]
    facts["unfinished"] = left = tuple(
        each.window for each in first if missing(each.window.interval, [chunk.interval for chunk in ran])
    )
    assert chosen("gaps", request.size, [*completed, *ran], **asked, facts=facts).windows == left

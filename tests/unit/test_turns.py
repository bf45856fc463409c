"""Whose turn it is among the mapped tasks of a DAG run."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_backfill.operators.turns import LONGEST_PAUSE_SECONDS, PAUSE_SECONDS, Turn

pytestmark = pytest.mark.unit

ENDED = ("success", "failed", "skipped", "upstream_failed", "removed")
OPEN = (None, "scheduled", "queued", "running", "deferred", "up_for_retry", "up_for_reschedule", "restarting")


def states(*values: str | None) -> dict[int, str | None]:
    return dict(enumerate(values))


@pytest.mark.parametrize("before", [state for state in OPEN if state != "up_for_retry"])
def test_one_at_a_time_waits_for_the_one_before(before: str | None) -> None:
    assert not Turn.of(states(before, "running"), 1, 1).come
    assert Turn.of(states(before, "running"), 1, 2).come


@pytest.mark.parametrize("before", ENDED)
def test_one_that_has_ended_is_not_waited_for(before: str) -> None:
    assert Turn.of(states(before, "running", None), 1, 1).come


def test_as_many_as_may_run_at_once_may_stand_before_the_next() -> None:
    queue = states("success", "running", "running", "running", "running")
    assert [Turn.of(queue, mine, 2).ahead for mine in queue] == [0, 0, 0, 1, 2]


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_a_chunk_that_will_be_tried_again_holds_those_behind_it_and_none_before_it(at_once: int) -> None:
    queue = states("success", "up_for_retry", "running")
    assert not Turn.of(queue, 2, at_once).come
    assert Turn.of(queue, 1, at_once).come


def test_only_failures_before_a_task_count() -> None:
    queue = states("failed", "success", "upstream_failed", "running", "failed")
    assert Turn.of(queue, 3, 1).failed == (0, 2)
    assert Turn.of(queue, 0, 1).failed == ()


@given(st.lists(st.sampled_from(OPEN + ENDED), min_size=1, max_size=12), st.integers(1, 4))
def test_somebody_may_always_go_on(values: list[str | None], at_once: int) -> None:
    """No set of states has every open task wait for another one."""
    queue = states(*values)
    waiting = [mine for mine, state in queue.items() if state not in ENDED]
    assert not waiting or any(Turn.of(queue, mine, at_once).come for mine in waiting)


def test_a_pause_follows_the_queue_and_the_retry_delay() -> None:
    def pause(turn: Turn, delay: float) -> float:
        return turn.pause(timedelta(seconds=delay)).total_seconds()

    queued = Turn(failed=(), retrying=(), ahead=1)
    assert pause(queued, 300) == PAUSE_SECONDS
    assert pause(Turn(failed=(), retrying=(0,), ahead=1), 30) == 30
    assert pause(Turn(failed=(), retrying=(0,), ahead=0), 1) == PAUSE_SECONDS
    assert pause(Turn(failed=(), retrying=(), ahead=500), 0) == LONGEST_PAUSE_SECONDS

"""Above which thresholds a plan has to be confirmed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_backfill.engine.estimates import Estimate, Spread, estimate
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.thresholds import objections, too_long
from airflow_provider_backfill.engine.window import MOST_CHUNKS, ChunkSize, Window
from airflow_provider_backfill.exceptions import SettingError, TooManyChunksError, UnconfirmedPlanError
from tests.support.ledgers import plan

pytestmark = pytest.mark.unit

HOUR = 3_600
EIGHT = Settings(max_estimated_hours=8)


def lasting(median: float, high: float | None = None) -> Estimate:
    """An estimate of so many hours."""
    seconds = Spread(median=median * HOUR, high=(high or median) * HOUR)
    return Estimate(chunks=12, concurrency=4, history=30, seconds=seconds)


@pytest.mark.parametrize(("median", "high", "above"), [(8, 8, False), (8.01, 9, True), (7, 30, False)])
def test_the_usual_duration_is_what_counts(median, high, above):
    assert (too_long(lasting(median, high), EIGHT) is not None) is above
    assert too_long(lasting(median, high), Settings()) is None


def test_no_history_and_nothing_to_run_are_no_reason():
    none = Settings(max_estimated_hours=1e-9)
    assert too_long(estimate([chunk.interval for chunk in plan().chunks], []), none) is None
    assert too_long(estimate([], []), none) is None
    assert objections([plan()], None, none) == []


def test_the_message_has_the_estimate_the_threshold_and_the_remedy():
    error = too_long(lasting(9, 12), EIGHT)
    assert isinstance(error, UnconfirmedPlanError)
    assert str(error) == (
        "the estimate (about 9 h to 12 h, 4 at once; from 30 chunks) is above max_estimated_hours = 8; "
        "confirm it with --yes (in a DAG: confirm=True), load a shorter window at a time, more chunks at "
        "once, or raise [chunked_backfill] max_estimated_hours (see docs/refusals.md#unconfirmedplanerror)"
    )
    assert error.exit_code == 2


def test_each_window_is_counted_by_itself():
    settings = replace(EIGHT, max_chunks=5)
    plans = [plan(5), plan(6), plan(7)]
    found = objections(plans, lasting(9), settings)
    assert [type(each) for each in found] == [TooManyChunksError, TooManyChunksError, UnconfirmedPlanError]
    assert found[0].reason == "chunk '1d' cuts this window into 6 chunks, more than max_chunks = 5"
    assert "confirm it with --yes (in a DAG: confirm=True), or raise [chunked" in str(found[0])
    assert objections(plans, lasting(9), settings.confirmed()) == []


def test_what_the_ledger_cannot_number_cannot_be_confirmed():
    assert Settings().confirmed().max_chunks == MOST_CHUNKS
    with pytest.raises(SettingError, match="max_chunks = 1000001 must be at most 1000000"):
        Settings(max_chunks=MOST_CHUNKS + 1)
    with pytest.raises(TooManyChunksError) as caught:
        Window(start=0, end=MOST_CHUNKS + 1).split(ChunkSize.parse(1), MOST_CHUNKS)
    assert str(caught.value) == (
        "chunk '1' cuts this window into 1000001 chunks, more than max_chunks = 1000000; "
        "use a larger chunk or a shorter window (see docs/refusals.md#toomanychunkserror)"
    )

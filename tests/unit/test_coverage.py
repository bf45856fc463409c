from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_backfill.engine.coverage import ChunkCoverage, Completed, Standing, classify
from airflow_provider_backfill.engine.plan import BackfillPlan, make_plan
from airflow_provider_backfill.engine.window import BoundInput, Interval, Window
from airflow_provider_backfill.exceptions import BoundFormatError
from tests.unit.strategies import Cells, completions, plans, spans

pytestmark = pytest.mark.unit


def plan(start: BoundInput, end: BoundInput, size: str | int, timezone: str = "UTC") -> BackfillPlan:
    return make_plan("web_events", Window.parse(start, end, timezone), size)


def done(other: BackfillPlan, *numbers: int) -> list[Completed]:
    """Chunks of a plan, all or those of the numbers, as completed."""
    chunks = [other.chunks[number] for number in numbers] if numbers else other.chunks
    return [
        Completed(backfill_id=other.backfill_id, chunk_id=chunk.chunk_id, interval=chunk.interval)
        for chunk in chunks
    ]


def standings(coverage: tuple[ChunkCoverage, ...]) -> list[str]:
    return [str(each.standing) for each in coverage]


def test_extending_the_end_by_a_day_leaves_one_chunk_due():
    before = plan("2026-01-01", "2026-01-06", "1d")
    assert standings(classify(plan("2026-01-01", "2026-01-07", "1d"), done(before))) == [
        *["covered"] * 5,
        "due",
    ]


def test_days_after_24_hours_are_all_covered_and_tell_by_whom():
    before = plan("2026-01-01", "2026-01-06", "24h")
    coverage = classify(plan("2026-01-01", "2026-01-06", "1d"), done(before))
    assert standings(coverage) == ["covered"] * 5
    assert {each.covered_by for each in coverage} == {before.backfill_id}
    assert coverage[0].reason() == f"covered by {before.backfill_id}"


def test_days_and_24_hours_part_where_clocks_are_moved():
    zone = "America/New_York"
    before = plan("2026-03-07", "2026-03-10", "24h", zone)
    coverage = classify(plan("2026-03-07", "2026-03-11", "1d", zone), done(before))
    # The third day of 24 hours ends at 01:00 of the fourth of 1d, for want of an hour on the second.
    assert standings(coverage) == ["covered", "covered", "covered", "due"]
    coverage = classify(plan("2026-03-07", "2026-03-11", "1d", zone), done(before, 0, 1))
    assert standings(coverage) == ["covered", "covered", "partly covered", "due"]
    assert coverage[2].reason(zone) == (
        f"partly covered: {before.backfill_id} loaded 2026-03-09T00:00 → 2026-03-09T01:00, "
        "missing 2026-03-09T01:00 → 2026-03-10T00:00"
    )


def test_a_chunk_is_covered_by_several_backfills_together():
    morning = plan("2026-01-01T00:00Z", "2026-01-01T12:00Z", "6h")
    evening = plan("2026-01-01T12:00Z", "2026-01-02T00:00Z", "12h")
    (day,) = classify(plan("2026-01-01", "2026-01-02", "1d"), [*done(evening), *done(morning)])
    assert day.standing is Standing.COVERED
    assert day.backfills == (morning.backfill_id, evening.backfill_id)
    assert day.covered_by == f"{morning.backfill_id},{evening.backfill_id}"
    assert [other.chunk_id for other in day.others] == ["000000", "000001", "000000"]


def test_a_chunk_that_only_touches_what_is_done_is_due():
    beside = [*done(plan("2025-12-31", "2026-01-01", "1d")), *done(plan("2026-01-02", "2026-01-03", "1d"))]
    (day,) = classify(plan("2026-01-01", "2026-01-02", "1d"), beside)
    assert (day.standing, day.covered_by, day.covered) == (Standing.DUE, None, ())
    assert day.reason() == "due: no backfill has loaded it"


def test_a_plan_does_not_cover_itself():
    own = plan("2026-01-01", "2026-01-03", "1d")
    assert standings(classify(own, done(own))) == ["due", "due"]


def test_of_many_parts_three_are_told():
    hours = plan("2026-01-01", "2026-01-02", "1h")
    (day,) = classify(plan("2026-01-01", "2026-01-02", "1d"), done(hours, *range(1, 11, 2)))
    assert len(day.missing) == 6
    assert day.reason().endswith(
        "missing 2026-01-01T00:00 → 2026-01-01T01:00, 2026-01-01T02:00 → 2026-01-01T03:00, "
        "2026-01-01T04:00 → 2026-01-01T05:00 and 3 more"
    )


@pytest.mark.parametrize(
    ("asked", "before", "message"),
    [
        (
            plan(0, 10, 10),
            plan("2026-01-01", "2026-01-02", "1d"),
            "start 0 is a whole number, and {} went by times",
        ),
        (plan("2026-01-01", "2026-01-02", "1d"), plan(0, 10, 10), "is a time, and {} went by whole numbers"),
    ],
)
def test_times_and_whole_numbers_are_not_compared(asked, before, message):
    with pytest.raises(BoundFormatError) as caught:
        classify(asked, done(before))
    assert message.format(f"backfill {before.backfill_id} of this source") in str(caught.value)


@given(st.data(), plans())
def test_due_and_covered_make_the_chunk(data, planned):
    completed = data.draw(completions(planned))
    if planned.window.interval.whole:
        # The ledger keeps completed chunks apart; classifying does not depend on it.
        completed += [
            Completed(backfill_id="fourth", chunk_id="0", interval=span)
            for span in data.draw(st.lists(spans))
        ]
    cells = Cells((chunk.interval for chunk in planned.chunks), (other.interval for other in completed))
    everywhere = set(cells.of(other.interval for other in completed))
    for chunk, each in zip(planned.chunks, classify(planned, completed), strict=True):
        inside = set(cells.of([chunk.interval]))
        assert each.chunk is chunk
        assert cells.of(each.missing) == sorted(inside - everywhere)
        assert cells.of(each.covered) == sorted(inside & everywhere)
        assert {(o.backfill_id, o.chunk_id, o.interval) for o in each.others} == {
            (o.backfill_id, o.chunk_id, o.interval) for o in completed if o.interval.overlaps(chunk.interval)
        }
        expected = (
            Standing.DUE
            if not inside & everywhere
            else Standing.COVERED
            if inside <= everywhere
            else Standing.PARTLY
        )
        assert each.standing is expected


def test_the_cost_grows_with_chunks_and_completed_and_not_with_their_product(monkeypatch):
    count = 0
    intersection = Interval.intersection

    def counted(self: Interval, other: Interval) -> Interval | None:
        nonlocal count
        count += 1
        return intersection(self, other)

    monkeypatch.setattr(Interval, "intersection", counted)
    hours = make_plan("web_events", Window(start=0, end=120_000), 60)
    halves = [
        Completed(backfill_id="other", chunk_id=f"{number:06d}", interval=Interval(start, start + 30))
        for number, start in enumerate(range(15, 120_000, 60))
    ]
    assert {each.standing for each in classify(hours, halves)} == {Standing.PARTLY}
    assert count <= 3 * (len(hours.chunks) + len(halves))

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_backfill.engine.coverage import Completed, classify
from airflow_provider_backfill.engine.overlaps import Overlap, Resolved, resolve
from airflow_provider_backfill.engine.plan import BackfillPlan, make_plan
from airflow_provider_backfill.engine.window import Interval, Window
from airflow_provider_backfill.exceptions import ChoiceError, OverlapError
from tests.unit.strategies import Cells, completions, plans
from tests.unit.test_coverage import done, plan

pytestmark = pytest.mark.unit


def resolved(planned: BackfillPlan, completed, overlap: str) -> Resolved:
    return resolve(planned, classify(planned, completed), overlap)


def attempts(found: Resolved) -> set[tuple[str, str, str, Interval]]:
    """What would run, by its identity: backfill, chunk, run and interval."""
    whole = [*found.due, *(each.chunk for each in found.reloaded)]
    return {(found.plan.backfill_id, each.chunk_id, each.run_id, each.interval) for each in whole} | {
        (gap.backfill_id, chunk.chunk_id, chunk.run_id, chunk.interval)
        for each in found.trimmed
        for gap in each.gaps
        for chunk in gap.chunks
    }


# --- refuse


def test_a_partly_covered_chunk_is_refused_with_the_backfill_and_the_days():
    before = plan("2026-01-01T12:00Z", "2026-01-03T12:00Z", "1d")
    found = resolved(plan("2026-01-01", "2026-01-05", "1d"), done(before), Overlap.REFUSE)
    assert [each.coverage.chunk.number for each in found.refused] == [1, 3]
    assert [chunk.number for chunk in found.due] == [4]
    assert [each.chunk.number for each in found.covered] == [2]
    with pytest.raises(OverlapError) as caught:
        found.check()
    assert str(caught.value) == (
        f"source 'web_events': backfill {before.backfill_id} has completed 2 chunk(s) in this window "
        "(2026-01-01T12:00 → 2026-01-02T12:00, 2026-01-02T12:00 → 2026-01-03T12:00), which would be loaded a "
        'second time; pass overlap="trim" to load only the gaps, overlap="reload" to replace what lies '
        "inside a chunk, or the window and chunk of that backfill to resume it "
        "(see docs/refusals.md#overlaperror)"
    )


def test_a_neighbour_in_the_way_of_several_chunks_counts_once():
    before = plan("2026-01-01T12:00Z", "2026-01-02T12:00Z", "1d")
    with pytest.raises(OverlapError, match=r"has completed 1 chunk\(s\)"):
        resolved(plan("2026-01-01", "2026-01-03", "1d"), done(before), Overlap.REFUSE).check()


def test_covered_and_due_chunks_are_not_refused():
    before = plan("2026-01-01", "2026-01-06", "24h")
    resolved(plan("2026-01-01", "2026-01-07", "1d"), done(before), Overlap.REFUSE).check()


def test_other_words_are_refused():
    with pytest.raises(ChoiceError, match="overlap 'replace' is unknown; pass refuse or trim or reload"):
        resolved(plan(0, 1, 1), [], "replace")


# --- trim


def test_gaps_are_backfills_that_a_person_could_ask_for():
    zone = "Europe/Berlin"
    before = plan("2026-03-28T12:00+01:00", "2026-03-29T12:00+02:00", "1d", zone)
    request = plan("2026-03-28", "2026-03-31", "1d", zone)
    found = resolved(request, done(before), Overlap.TRIM)
    found.check()
    gaps = [gap for each in found.trimmed for gap in each.gaps]
    assert [gap.backfill_id for gap in gaps] == [
        plan("2026-03-28", "2026-03-28T12:00+01:00", "12h", zone).backfill_id,
        plan("2026-03-29T12:00+02:00", "2026-03-30", "12h", zone).backfill_id,
    ]
    assert [gap.chunk_size for gap in gaps] == ["12h@Europe/Berlin"] * 2
    assert [each.coverage.chunk.number for each in found.trimmed] == [1, 2]
    assert [chunk.number for chunk in found.due] == [3]


def test_requests_that_leave_the_same_gap_share_it():
    before = plan("2026-01-01T06:00Z", "2026-01-02T00:00Z", "6h")
    ids = {
        gap.backfill_id
        for size in ("1d", "24h", "2d", "9h")
        for each in resolved(plan("2026-01-01", "2026-01-03", size), done(before), Overlap.TRIM).trimmed
        for gap in each.gaps
        if gap.window.end == before.window.start
    }
    assert len(ids) == 1


def test_a_gap_of_a_month_is_one_chunk():
    before = plan("2024-02-29T00:00Z", "2024-02-29T01:00Z", "1h")
    found = resolved(plan("2024-01-31", "2024-03-31", "1mo"), done(before), Overlap.TRIM)
    ((gap,),) = [each.gaps for each in found.trimmed]
    # A month from 02-29T01:00 would end before the chunk does, which ends where the third month starts.
    assert [chunk.interval for chunk in gap.chunks] == [
        Window.parse("2024-02-29T01:00Z", "2024-03-31").interval
    ]


def test_gaps_select_what_the_plan_selects():
    request = make_plan("web_events:clicks,views", Window(start=0, end=10), 10)
    before = Completed(backfill_id="other", chunk_id="000000", interval=Interval(3, 5))
    (trimmed,) = resolved(request, [before], Overlap.TRIM).trimmed
    assert [(gap.source, gap.resources) for gap in trimmed.gaps] == [
        (request.source, ("clicks", "views"))
    ] * 2


@given(st.data(), plans())
def test_planned_again_trimming_asks_for_what_is_left_under_the_same_names(data, request):
    others = data.draw(completions(request))
    first = attempts(resolved(request, others, Overlap.TRIM))
    ran = data.draw(st.sets(st.sampled_from(sorted(first)), max_size=len(first))) if first else set()
    now = others + [Completed(backfill_id=one, chunk_id=two, interval=what) for one, two, _, what in ran]
    again = resolved(request, now, Overlap.TRIM)
    # Of the chunks of its own, the ledger's rows tell which are done.
    assert attempts(again) - ran == first - ran
    assert [chunk.chunk_id for chunk in again.plan.chunks] == [chunk.chunk_id for chunk in request.chunks]


# --- reload


def test_a_chunk_replaces_what_lies_inside_it():
    before = plan("2026-01-01T06:00Z", "2026-01-01T18:00Z", "6h")
    found = resolved(plan("2026-01-01", "2026-01-03", "1d"), done(before), Overlap.RELOAD)
    found.check()
    (reloaded,) = found.reloaded
    assert reloaded.chunk.number == 1
    assert reloaded.replaced == tuple(done(before))
    assert found.runs == tuple(chunk.interval for chunk in found.plan.chunks)


def test_a_neighbour_that_is_cut_across_is_told():
    inside = plan("2026-01-01T06:00Z", "2026-01-01T12:00Z", "6h")
    across = plan("2026-01-01T18:00Z", "2026-01-02T06:00Z", "12h")
    found = resolved(plan("2026-01-01", "2026-01-02", "1d"), [*done(inside), *done(across)], Overlap.RELOAD)
    (refused,) = found.refused
    assert refused.neighbours == tuple(done(across))
    assert not found.reloaded
    with pytest.raises(
        OverlapError, match=f"backfill {across.backfill_id} has completed 1 .*wholly inside it"
    ):
        found.check()


# --- all


@given(st.data(), plans(), st.sampled_from(Overlap))
def test_what_runs_and_what_stands_make_the_window(data, request, overlap):
    others = data.draw(completions(request))
    found = resolved(request, others, overlap)
    chunks = [
        *(chunk.number for chunk in found.due),
        *(each.chunk.number for each in found.covered),
        *(each.chunk.number for each in found.reloaded),
        *(each.coverage.chunk.number for each in found.trimmed),
        *(each.coverage.chunk.number for each in found.refused),
    ]
    assert sorted(chunks) == [chunk.number for chunk in request.chunks]
    cells = Cells((chunk.interval for chunk in request.chunks), (other.interval for other in others))
    replaced = [other for each in found.reloaded for other in each.replaced]
    refused = [each.coverage.chunk.interval for each in found.refused]
    standing = [other.interval for other in others if other not in replaced]
    window = set(cells.of([request.window.interval])) - set(cells.of(refused))
    # No part twice: neither by two attempts, nor by an attempt and by what stands.
    assert sorted(cells.of(found.runs) + [one for one in cells.of(standing) if one in window]) == sorted(
        window
    )
    assert all(
        each.chunk.interval.contains(other.interval) for each in found.reloaded for other in each.replaced
    )
    assert not (overlap == Overlap.TRIM and found.refused)

"""Windows that overlap with what was loaded before: covered, trimmed, reloaded, refused."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_backfill.engine import drive
from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.controls import BackfillControls, Control, ControlState
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.inputs import PlanInputs
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.plan import BackfillPlan, make_plan
from airflow_provider_backfill.engine.records import ChunkRow, Claim
from airflow_provider_backfill.engine.report import explain, plan_pairs
from airflow_provider_backfill.engine.runner import this_claimant
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.survey import survey
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import OverlapError, RestateError
from tests.support.ledgers import opened
from tests.support.sources import day, events, source_of
from tests.support.worlds import ITEMS, World

IDS = "SELECT id FROM @events ORDER BY id"


class Seen:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.chunks: list[tuple[int, str]] = []

    def running(self, claim: Claim) -> None:
        self.chunks.append((claim.number, str(claim.interval)))

    def completed(self, claim: Claim, records: int) -> None: ...

    def failed(self, claim: Claim, reason: str) -> None:
        raise AssertionError(reason)

    def waiting(self, rows: list[ChunkRow], seconds_left: float) -> None:
        raise AssertionError("nobody holds anything")

    def paused(self, control: Control) -> None:
        raise AssertionError("nobody paused it")


@pytest.fixture
def world(target: Target, settings: Settings) -> World:
    return World(target, settings)


def load(backfill: Backfill) -> tuple[BackfillPlan, Seen]:
    plan, seen = backfill.plan(), Seen()
    backfill.seed(plan)
    assert drive.run(backfill, plan, seen).covered
    return plan, seen


def over(
    backfill: Backfill, size: str, *, start: int = 1, end: int = 4, hour: int = 0, overlap: str = "refuse"
) -> Backfill:
    """The same source over other days of January, by another size."""
    window = Window(start=day(start, hour), end=day(end, 0))
    return replace(backfill, window=window, chunk=ChunkSize.parse(size), overlap=overlap)


def rows_of(world: World, plan: BackfillPlan) -> list[ChunkRow]:
    with opened(world.target) as ledger:
        return ledger.chunks(plan.backfill_id)


def test_extending_the_window_by_a_day_runs_one_chunk(world: World, caplog: pytest.LogCaptureFixture) -> None:
    three, _ = load(world.backfill(source_of(events()), days=3))
    plan, seen = load(world.backfill(source_of(events()), days=4))
    assert [number for number, _ in seen.chunks] == [4]
    assert [row.covered_by for row in rows_of(world, plan)] == [three.backfill_id] * 3 + [None]
    assert world.query(IDS) == [(1,), (2,), (3,), (4,)]
    # The rows of the third day stand elsewhere, and are not missed.
    assert "has no rows" not in caplog.text


def test_days_after_hours_run_none(world: World) -> None:
    backfill = world.backfill(source_of(events()))
    load(over(backfill, "24h"))
    loaded = world.query("SELECT _dlt_load_id FROM @events ORDER BY id")
    plan, seen = load(backfill)
    assert seen.chunks == []
    assert {row.status for row in rows_of(world, plan)} == {"completed"}
    assert {row.records_loaded for row in rows_of(world, plan)} == {0}
    assert world.query("SELECT _dlt_load_id FROM @events ORDER BY id") == loaded
    # What is only covered covers nothing by itself: days by weeks go by those that have the rows.
    whole, _ = load(over(backfill, "3d"))
    assert rows_of(world, whole)[0].covered_by not in (None, plan.backfill_id)


def test_a_chunk_that_is_partly_covered_is_refused_and_named(world: World) -> None:
    backfill = world.backfill(source_of(events()))
    plan, _ = load(over(backfill, "1d", end=2))
    with pytest.raises(OverlapError) as caught:
        over(backfill, "2d", end=5).plan()
    assert (
        f"backfill {plan.backfill_id} has completed 1 chunk(s) in this window (2024-01-01 → 2024-01-02)"
        in str(caught.value)
    )
    assert [row.backfill_id for row in opened_rows(world)] == [plan.backfill_id]


def opened_rows(world: World) -> list[ChunkRow]:
    with opened(world.target) as ledger:
        return ledger.dataset_chunks()


def test_trim_loads_the_gaps_alone(world: World) -> None:
    backfill = world.backfill(source_of(events()))
    load(over(backfill, "1d", start=2, end=3))
    kept = world.query("SELECT _dlt_load_id FROM @events WHERE id = 2")
    plan, seen = load(over(backfill, "5d", end=6, overlap="trim"))
    assert seen.chunks == [
        (1, "2024-01-01T00:00:00+00:00 → 2024-01-02T00:00:00+00:00"),
        (1, "2024-01-03T00:00:00+00:00 → 2024-01-06T00:00:00+00:00"),
    ]
    assert world.query(IDS) == [(number,) for number in range(1, 6)]
    assert world.query("SELECT _dlt_load_id FROM @events WHERE id = 2") == kept
    [row] = rows_of(world, plan)
    assert (row.status, len(row.covered_by.split(","))) == ("completed", 3)
    # A second time there is nothing to do, and the gaps are known by the bounds alone.
    _, seen = load(over(backfill, "5d", end=6, overlap="trim"))
    assert seen.chunks == []
    gap = make_plan("web_events", Window(start=day(3, 0), end=day(6, 0)), "3d")
    assert [row.status for row in rows_of(world, gap)] == ["completed"]


def test_a_gap_that_failed_is_resumed(world: World) -> None:
    down = True

    def rows():
        yield events()[0]
        if down:
            raise RuntimeError("down")
        yield from events()[1:]

    backfill = world.backfill(source_of(rows))
    load(over(world.backfill(source_of(events())), "1d", start=2, end=3))
    wide = over(backfill, "3d", overlap="trim")
    plan = wide.plan()
    wide.seed(plan)
    with pytest.raises(Exception, match="down"):
        wide.runner.run_chunk(plan.backfill_id, "000000", this_claimant())
    assert world.query(IDS) == [(2,)]
    down = False
    outcome = wide.runner.run_chunk(plan.backfill_id, "000000", this_claimant())
    assert (outcome.loaded, outcome.records) == (True, 6)
    assert world.query(IDS) == [(1,), (2,), (3,)]
    assert rows_of(world, plan)[0].status == "completed"


def test_reload_replaces_what_lies_inside(world: World) -> None:
    backfill = world.backfill(source_of(events()))
    before, _ = load(over(backfill, "1d", start=2, end=4))
    old = world.query("SELECT DISTINCT _dlt_load_id FROM @events")
    wide = over(backfill, "5d", end=6, overlap="reload")
    plan, seen = load(wide)
    assert len(seen.chunks) == 1
    assert world.query(IDS) == [(number,) for number in range(1, 6)]
    assert world.query(ITEMS) == [(number, 2) for number in range(1, 6)]
    assert not set(old) & set(world.query("SELECT DISTINCT _dlt_load_id FROM @events"))
    assert [(row.status, row.covered_by, row.load_ids) for row in rows_of(world, before)] == [
        ("completed", plan.backfill_id, None)
    ] * 2
    # The replaced ones have no rows of their own: restating them loads nothing twice.
    with opened(world.target) as ledger:
        ledger.restate(before.backfill_id, "000000")
    runner = over(backfill, "1d", start=2, end=4).runner
    assert runner.run_chunk(before.backfill_id, "000000", this_claimant()).loaded is False
    assert world.query(IDS) == [(number,) for number in range(1, 6)]


def test_a_chunk_restated_while_another_takes_its_place_is_absorbed_too(world: World) -> None:
    """Its rows are deleted with the others, and nobody may take them for standing."""
    restated: list[BackfillPlan] = []

    def rows() -> Iterator[dict[str, Any]]:
        with opened(world.target) as ledger:
            ledger.restate(restated[0].backfill_id, "000000")
        yield from events()

    good = world.backfill(source_of(events()))
    before, _ = load(over(good, "1d", start=2, end=4))
    restated.append(before)
    plan, _ = load(over(world.backfill(source_of(rows)), "5d", end=6, overlap="reload"))
    assert [(row.status, row.covered_by, row.load_ids) for row in rows_of(world, before)] == [
        ("completed", plan.backfill_id, None)
    ] * 2
    assert world.query(IDS) == [(number,) for number in range(1, 6)]


@pytest.mark.parametrize("overlap", ["refuse", "trim"])
def test_a_version_and_another_backfill_that_have_the_same_rows_are_refused(
    world: World, overlap: str
) -> None:
    """For example since a person marked the other one as done. Neither a loop nor a second copy."""
    backfill = world.backfill(source_of(events()))
    days = over(backfill, "1d", end=3, overlap=overlap)
    plan, _ = load(days)
    hours = over(backfill, "24h", end=3)
    marked = hours.plan()
    hours.seed(marked)
    with opened(world.target) as ledger:
        ledger._session.execute(
            f"UPDATE {world.target.ledger} SET covered_by = NULL, records_loaded = NULL"
            f" WHERE backfill_id = '{marked.backfill_id}'"
        )
        ledger.restate(plan.backfill_id, "000001")
    with pytest.raises(OverlapError, match=marked.backfill_id):
        days.runner.run_chunk(plan.backfill_id, "000001", this_claimant())
    with pytest.raises(OverlapError, match=marked.backfill_id):
        drive.run(days, plan, Seen())
    assert world.query(IDS) == [(1,), (2,)]


def test_reload_that_fails_leaves_everything(world: World) -> None:
    def broken():
        raise RuntimeError("down")
        yield

    good = world.backfill(source_of(events()))
    before, _ = load(over(good, "1d", start=2, end=4))
    wide = over(world.backfill(source_of(broken)), "5d", end=6, overlap="reload")
    plan = wide.plan()
    wide.seed(plan)
    with pytest.raises(Exception, match="down"):
        wide.runner.run_chunk(plan.backfill_id, "000000", this_claimant())
    assert world.query(IDS) == [(2,), (3,)]
    assert [(row.status, row.covered_by) for row in rows_of(world, before)] == [("completed", None)] * 2


def test_reload_refuses_to_cut_a_neighbour(world: World) -> None:
    backfill = world.backfill(source_of(events()))
    load(over(backfill, "2d", end=5))
    with pytest.raises(OverlapError, match="a chunk may replace only what lies wholly inside it"):
        over(backfill, "3d", end=7, overlap="reload").plan()
    with opened(world.target) as ledger:
        ledger._session.execute(f"UPDATE {world.target.ledger} SET load_ids = NULL")
    with pytest.raises(RestateError, match="does not say which rows it loaded"):
        over(backfill, "5d", end=6, overlap="reload").plan()


def test_reload_refuses_what_a_person_marked_as_done(world: World) -> None:
    """Nobody knows its rows, which would stay beside the new ones."""
    backfill = world.backfill(source_of(events()))
    inside = over(backfill, "1d", start=2, end=3)
    plan = inside.plan()
    inside.seed(plan)
    with opened(world.target) as ledger:
        ledger._session.execute(f"UPDATE {world.target.ledger} SET status = 'completed'")
    with pytest.raises(RestateError, match="does not say which rows it loaded"):
        over(backfill, "5d", end=6, overlap="reload").plan()


def test_a_pause_reaches_the_gaps_of_a_chunk(world: World) -> None:
    paused: list[BackfillPlan] = []

    def rows() -> Iterator[dict[str, Any]]:
        # The first gap is read: whoever pauses the backfill now is heard before the second.
        with opened(world.target) as ledger:
            controls = BackfillControls(ledger._session, world.target)
            controls.put("web_events", paused[0].backfill_id, ControlState.CANCELLED, "me@here", "enough")
        yield from events()

    load(over(world.backfill(source_of(events())), "1d", start=2, end=3))
    wide = over(world.backfill(source_of(rows)), "5d", end=6, overlap="trim")
    plan = wide.plan()
    paused.append(plan)
    wide.seed(plan)
    tally = drive.run(wide, plan, Seen())
    assert (tally.covered, world.query(IDS)) == (False, [(1,), (2,)])


def test_a_plan_explains_each_chunk(world: World) -> None:
    backfill = world.backfill(source_of(events()), days=2)
    done, _ = load(backfill)
    wide = world.backfill(source_of(events()), days=4)
    found = wide.survey(wide.plan())
    assert (found.completed, found.covered, found.due) == (0, 2, 2)
    assert [why for *_, why in explain(found)] == [f"covered by {done.backfill_id}"] * 2 + [
        "due: no backfill has loaded it"
    ] * 2
    assert str(found.gaps[0]) == "2024-01-03T00:00:00+00:00 → 2024-01-05T00:00:00+00:00"
    assert "from 2 chunks" in str(found.estimate)
    assert found.before == ()
    later = over(backfill, "1d", start=5, end=6)
    found = later.survey(later.plan())
    assert [str(gap)[:10] for gap in found.before] == ["2024-01-03"]
    assert dict(plan_pairs(found, world.settings))["missing before"] == "2024-01-03 → 2024-01-05"


def test_ten_thousand_chunks_against_ten_thousand_completed_rows(pg_target: Target) -> None:
    """In a number of statements that does not grow; the time is measured by make bench."""
    window = Window.parse("2024-01-01", "2025-02-20T16:00:00Z")
    hours, minutes = make_plan("web_events", window, "1h"), make_plan("web_events", window, "60m")
    assert len(hours.chunks) == 10_000
    statements: list[str] = []
    with opened(pg_target) as ledger:
        inputs = PlanInputs(ledger._session, pg_target)
        ledger.prepare(inputs)
        ledger.seed(hours)
        inputs.remember(hours.backfill_id, ["page_views"])
        ledger._session.execute(f"UPDATE {pg_target.ledger} SET status = 'completed', records_loaded = 0")
        execute = ledger._session.execute

        def counted(text: str, *rest: Any) -> list[tuple[Any, ...]]:
            statements.append(text)
            return execute(text, *rest)

        ledger._session.execute = counted  # type: ignore[method-assign,assignment]
        began = time.monotonic()
        found = survey(ledger, inputs, minutes, "refuse")
        print(json.dumps({"plan of 10,000 against 10,000, seconds": time.monotonic() - began}))
        many, statements[:] = list(statements), []
        few = make_plan("web_events", Window.parse("2024-01-01", "2024-01-02"), "60m")
        survey(ledger, inputs, few, "refuse")
    assert (found.covered, found.due, found.gaps) == (10_000, 0, ())
    assert many == statements


def test_two_backfills_that_overlap_at_once_cover_each_other(world: World) -> None:
    """Both are planned before either has loaded anything."""
    days, hours = world.backfill(source_of(events())), over(world.backfill(source_of(events())), "24h")
    plans = [days.plan(), hours.plan()]
    for backfill, plan in zip((days, hours), plans, strict=True):
        backfill.seed(plan)
    assert drive.run(days, plans[0], Seen()).completed == 3
    seen = Seen()
    tally = drive.run(hours, plans[1], seen)
    assert (seen.chunks, tally.skipped, tally.covered) == ([], 3, True)
    assert world.query(IDS) == [(1,), (2,), (3,)]


def test_the_ledger_is_read_alone(world: World) -> None:
    backfill = world.backfill(source_of(events()))
    plan, _ = load(backfill)
    before = opened_rows(world)
    wide = world.backfill(source_of(events()), days=5)
    wide.survey(wide.plan())
    assert opened_rows(world) == before
    with opened(world.target) as ledger:
        assert isinstance(ledger, Ledger)
        assert len(ledger.chunks(plan.backfill_id)) == 3


def test_gaps_are_what_nobody_has_loaded(world: World) -> None:
    backfill = world.backfill(source_of(events()))
    whole = over(backfill, "1d", end=8)
    assert whole.gaps() == (whole.window.interval,)
    load(over(backfill, "24h", start=2, end=4))
    load(over(backfill, "6h", start=5, end=6))
    assert [str(gap) for gap in whole.gaps()] == [
        "2024-01-01T00:00:00+00:00 → 2024-01-02T00:00:00+00:00",
        "2024-01-04T00:00:00+00:00 → 2024-01-05T00:00:00+00:00",
        "2024-01-06T00:00:00+00:00 → 2024-01-08T00:00:00+00:00",
    ]
    assert over(backfill, "24h", start=2, end=4).gaps() == ()

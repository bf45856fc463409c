"""Handing over: a pipeline that loads forward goes on exactly where the covered window ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import dlt
import pytest

from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.handover import Bookmark, Handover
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import HandoverError
from tests.support.sources import EPOCH, day, events, source_of
from tests.support.worlds import World

#: The window is days 1 to 3; a row stands exactly at its end, and some behind.
ROWS = [*events(6), {"id": 30, "at": day(4, 0), "order": 300, "items": []}]
SOURCE = source_of(ROWS)
IDS = "SELECT id FROM @events ORDER BY id"
FORWARD = "web_forward"


class Handing(World):
    """A world, and a pipeline that loads the same source forward from machines of its own."""

    def __init__(self, target: Target, settings: Settings, home: Path) -> None:
        super().__init__(target, settings)
        self.home = home

    def covered(self, source: Callable[[], Any] = SOURCE, **spec: Any) -> tuple[Backfill, BackfillPlan]:
        backfill, plan = self.seeded(source, **spec)
        self.run(backfill, plan)
        return backfill, plan

    def forward(self, data: Any, machine: str = "one") -> Any:
        """One run of the pipeline; a machine keeps what the pipeline left there."""
        pipeline = dlt.pipeline(
            FORWARD,
            pipelines_dir=str(self.home / machine),
            destination=self.target.dialect.build_destination(self.target.credentials),
            dataset_name=self.target.dataset_name,
        )
        try:
            pipeline.run(data)
            return pipeline.state
        finally:
            pipeline.deactivate()

    def ids(self) -> list[int]:
        return [number for (number,) in self.query(IDS)]

    def states(self) -> int:
        [(count,)] = self.query("SELECT count(*) FROM @_dlt_pipeline_state")
        return int(count)


@pytest.fixture
def world(target: Target, settings: Settings, tmp_path: Path) -> Iterator[Handing]:
    world = Handing(target, settings, tmp_path / "machines")
    yield world
    assert world.leftovers() == []


def until(limit: datetime, rows: list[dict[str, Any]] = ROWS) -> Any:
    """The source as it was at a time."""
    return source_of([row for row in rows if row["at"] < limit])()


def test_a_pipeline_that_never_ran_begins_at_the_end_of_the_window(world: Handing) -> None:
    backfill, _ = world.covered()
    [bookmark] = Handover.of(backfill, FORWARD).carry_out()
    assert bookmark == Bookmark(resource="events", cursor="at", before=None, value=day(4, 0))
    assert str(bookmark) == "events.at: none → 2024-01-04T00:00:00+00:00"
    assert world.ids() == [1, 2, 3]
    world.forward(SOURCE())
    # The row at the bound is loaded once, and the pipeline goes on by itself.
    assert world.ids() == [1, 2, 3, 4, 5, 6, 30]
    world.forward(SOURCE())
    world.forward(SOURCE(), machine="two")
    assert world.ids() == [1, 2, 3, 4, 5, 6, 30]
    assert world.query("SELECT count(*) FROM @events__items") == [(12,)]


def test_a_pipeline_that_ran_before_picks_it_up_on_its_machine_and_on_any_other(world: Handing) -> None:
    """It had loaded day 1, then was down; the backfill took over on day 2."""
    world.forward(until(day(2, 0)))
    backfill = replace(world.backfill(SOURCE), window=Window(start=day(1, 13), end=day(4, 0)))
    plan = backfill.plan()
    backfill.seed(plan)
    world.run(backfill, plan)
    # The last row that it loaded is at noon, which is before the window.
    with pytest.raises(HandoverError, match="lies before 2024-01-01T13:00:00"):
        Handover.of(backfill, FORWARD).carry_out()
    assert world.states() == 1
    before = replace(world.backfill(source_of([])), window=Window(start=day(1, 12), end=day(1, 13)))
    world.run(
        *_seeded(replace(before, source=replace(before.source, on_empty="ok"), chunk=ChunkSize.parse("1h")))
    )
    [bookmark] = Handover.of(backfill, FORWARD).carry_out()
    assert (bookmark.before, bookmark.value) == (day(1), day(4, 0))
    assert world.states() == 2
    world.forward(until(day(5, 0)))
    assert world.ids() == [1, 2, 3, 4, 30]
    world.forward(SOURCE(), machine="two")
    assert world.ids() == [1, 2, 3, 4, 5, 6, 30]


def _seeded(backfill: Backfill) -> tuple[Backfill, BackfillPlan]:
    plan = backfill.plan()
    backfill.seed(plan)
    return backfill, plan


def test_a_second_time_nothing_moves(world: Handing) -> None:
    backfill, _ = world.covered()
    handover = Handover.of(backfill, FORWARD)
    handover.carry_out()
    [bookmark] = handover.carry_out()
    assert not bookmark.moved
    assert str(bookmark) == "events.at: 2024-01-04T00:00:00+00:00, as it was"
    assert world.states() == 1


def test_it_never_moves_backwards(world: Handing) -> None:
    world.forward(until(day(6, 0)))
    state = world.states()
    backfill = world.backfill(SOURCE)
    handover = Handover.of(backfill, FORWARD)
    # Before a chunk runs, too.
    for step in (handover.check, handover.carry_out):
        if step == handover.carry_out:
            world.run(*_seeded(backfill))
        with pytest.raises(HandoverError, match=r"2024-01-05T12:00:00.* and would move backwards"):
            step()
    assert world.states() == state
    world.forward(SOURCE())
    assert [number for number in world.ids() if number > 3 and number != 30] == [4, 5, 6]


def test_a_window_that_is_not_covered_is_not_handed_over(world: Handing) -> None:
    backfill, plan = world.seeded(SOURCE)
    handover = Handover.of(backfill, FORWARD)
    handover.check()
    world.run(backfill, plan, 1, 3)
    with pytest.raises(HandoverError, match="'web_forward': the window is not covered"):
        handover.carry_out()
    # Another backfill may have done the rest.
    world.run(backfill, plan, 2)
    assert len(handover.carry_out()) == 1


@pytest.mark.parametrize("last", ["z", 7])
def test_a_bookmark_of_another_type_is_refused(world: Handing, last: Any) -> None:
    def other() -> Any:
        @dlt.source(name="web_events")
        def wrapped() -> Any:
            @dlt.resource(name="events")
            def resource(at: Any = dlt.sources.incremental("at", initial_value=last)) -> Any:
                return []

            return resource

        return wrapped()

    world.forward(other())
    handover = Handover.of(world.backfill(SOURCE), FORWARD)
    with pytest.raises(HandoverError, match=f"is a {type(last).__name__}, and the window's end a "):
        handover.check()


FORMATS: list[tuple[str, Any, Callable[[datetime], Any], Any]] = [
    ("epoch_s", 0, lambda at: int(at.timestamp()), 1_704_326_400),
    ("epoch_ms", 0, lambda at: int(at.timestamp() * 1000), 1_704_326_400_000),
    ("%Y-%m-%dT%H:%M:%SZ", "2020", lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ"), "2024-01-04T00:00:00Z"),
    ("date", date(2020, 1, 1), lambda at: at.date(), date(2024, 1, 4)),
    ("naive", datetime(2020, 1, 1), lambda at: at.replace(tzinfo=None), datetime(2024, 1, 4)),  # noqa: DTZ001
    (
        "naive@Europe/Berlin",
        datetime(2020, 1, 1),  # noqa: DTZ001
        lambda at: (at + timedelta(hours=1)).replace(tzinfo=None),
        datetime(2024, 1, 4, 1),  # noqa: DTZ001
    ),
]


@pytest.mark.parametrize(
    ("spelling", "first", "spelled", "value"), FORMATS, ids=[form[0] for form in FORMATS]
)
def test_a_bookmark_is_spelled_as_the_source_has_it(
    world: Handing, spelling: str, first: Any, spelled: Callable[[datetime], Any], value: Any
) -> None:
    def make() -> Any:
        @dlt.source(name="web_events")
        def wrapped() -> Any:
            @dlt.resource(name="events")
            def resource(at: Any = dlt.sources.incremental("at", initial_value=first)) -> Any:
                yield from ({"id": row["id"], "at": spelled(row["at"])} for row in ROWS)

            return resource

        return wrapped()

    backfill, _ = world.covered(make, cursor_format={"*": spelling})
    [bookmark] = Handover.of(backfill, FORWARD).carry_out()
    assert bookmark.value == value
    world.forward(make())
    assert world.ids() == [1, 2, 3, 4, 5, 6, 30]
    world.forward(make())
    assert world.ids() == [1, 2, 3, 4, 5, 6, 30]


def test_ids_of_a_window_of_whole_numbers(world: Handing) -> None:
    def make() -> Any:
        @dlt.source(name="web_events")
        def wrapped() -> Any:
            @dlt.resource(name="events")
            def resource(number: Any = dlt.sources.incremental("id", initial_value=0)) -> Any:
                yield from ({"id": number} for number in range(10))

            return resource

        return wrapped()

    asked = replace(world.backfill(make), window=Window.parse(0, 6), chunk=ChunkSize.parse("3"))
    world.run(*_seeded(asked))
    [bookmark] = Handover.of(asked, FORWARD).carry_out()
    assert bookmark.value == 6
    world.forward(make())
    assert world.ids() == list(range(10))


@dlt.resource(name="events")
def bare(at: Any = dlt.sources.incremental("at", initial_value=EPOCH)) -> Any:
    yield from ({"id": row["id"], "at": row["at"]} for row in ROWS)


@pytest.mark.parametrize("ran_before", [False, True])
def test_a_resource_that_the_pipeline_runs_by_itself(world: Handing, ran_before: bool) -> None:
    if ran_before:
        world.forward(
            source_of([{"id": 1, "at": day(1)}], name="others")().resources["events"].with_name("more")
        )
    backfill = world.backfill(bare)
    world.run(*_seeded(backfill))
    Handover.of(backfill, FORWARD).carry_out()
    world.forward(bare())
    assert world.ids() == [1, 2, 3, 4, 5, 6, 30]
    world.forward(bare(), machine="two")
    assert world.ids() == [1, 2, 3, 4, 5, 6, 30]


def test_each_resource_has_a_bookmark_of_its_own_and_others_are_left_alone(world: Handing) -> None:
    def make() -> Any:
        @dlt.source(name="web_events")
        def wrapped() -> Any:
            def rows(at: Any = dlt.sources.incremental("at", initial_value=EPOCH)) -> Any:
                yield from ({"id": row["id"], "at": row["at"]} for row in ROWS)

            return [dlt.resource(rows, name=name) for name in ("events", "clicks", "visits")]

        return wrapped()

    world.forward(make().with_resources("visits"))
    backfill, _ = world.covered(make, resources=("events", "clicks"))
    bookmarks = Handover.of(backfill, FORWARD).carry_out()
    assert {bookmark.resource for bookmark in bookmarks} == {"events", "clicks"}
    world.forward(make())
    for table in ("events", "clicks", "visits"):
        assert [n for (n,) in world.query(f"SELECT id FROM @{table} ORDER BY id")] == [1, 2, 3, 4, 5, 6, 30]


def test_the_next_state_is_the_newest_whatever_the_clocks_say(world: Handing) -> None:
    world.forward(until(day(1, 13)))
    ahead = f"{datetime(2100, 1, 1, tzinfo=UTC).timestamp()}"
    world.query(f"UPDATE @_dlt_pipeline_state SET _dlt_load_id = '{ahead}'")
    world.query(f"UPDATE @_dlt_loads SET load_id = '{ahead}'")
    backfill, _ = world.covered()
    Handover.of(backfill, FORWARD).carry_out()
    world.forward(until(day(5, 0)), machine="two")
    assert [number for number in world.ids() if number > 1] == [2, 3, 4, 30]


def test_another_name_in_the_ledger_does_not_matter_to_the_pipeline(world: Handing) -> None:
    backfill, _ = world.covered(name="views_of_2024")
    Handover.of(backfill, FORWARD).carry_out()
    state = world.forward(SOURCE())
    assert list(state["sources"]) == ["web_events"]
    assert world.ids() == [1, 2, 3, 4, 5, 6, 30]


def test_a_source_without_a_cursor_has_no_bookmark(world: Handing) -> None:
    def make(since: Any = None) -> Any:
        @dlt.resource(name="events")
        def rows() -> Any:
            yield {"id": 1, "at": since}

        return rows

    asked = world.backfill(make, bounded_by="kwargs", arguments={"since": "{chunk.start}"})
    with pytest.raises(HandoverError, match="the source has no cursor; leave handover out"):
        Handover.of(asked, FORWARD).check()

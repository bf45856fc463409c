"""Promotion: a window moves out of another dataset, each of its rows once, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import dlt
import pyarrow
import pytest

from airflow_provider_backfill.engine import attempt as attempt_module
from airflow_provider_backfill.engine import promote as promote_module
from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.promote import Promotion
from airflow_provider_backfill.engine.publish import publish
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import AttemptError, PromoteError
from tests.support.sources import EPOCH, changes, changing, day, events, source_of
from tests.support.worlds import IDS, ITEMS, World, steal

APPEND = source_of(events())
THREE = [(number, number * 10) for number in (1, 2, 3)]
PAIRS = [(number, 2) for number in (1, 2, 3)]


class Worlds:
    """Where a backfill belongs, and the dataset that it was redirected into."""

    def __init__(self, target: Target, settings: Settings) -> None:
        self.home = World(target, settings)
        self.look = World(replace(target, dataset_name="web_look"), settings)

    def loaded(self, source: Callable[[], Any], days: int = 3, **spec: Any) -> tuple[Promotion, BackfillPlan]:
        """All chunks are in the other dataset, and pending at home."""
        self.look.run(*self.look.seeded(source, days, **spec))
        promotion = self.promotion(self.home.backfill(source, days, **spec))
        plan = promotion.plan()
        promotion.seed(plan)
        return promotion, plan

    def promotion(self, backfill: Backfill) -> Promotion:
        given = {each.name: getattr(backfill, each.name) for each in fields(Backfill)}
        return Promotion(origin=self.look.target, **given)


@pytest.fixture
def worlds(target: Target, settings: Settings) -> Worlds:
    return Worlds(target, settings)


def loads(world: World) -> list[tuple[Any, ...]]:
    return world.query("SELECT load_id FROM @_dlt_loads WHERE status = 0 ORDER BY load_id")


def test_rows_and_nested_rows_arrive_once_under_loads_of_their_own(worlds: Worlds) -> None:
    promotion, plan = worlds.loaded(APPEND)
    outcomes = worlds.home.run(promotion, plan)
    assert [(outcome.loaded, outcome.records) for outcome in outcomes] == [(True, 3)] * 3
    assert worlds.home.query(IDS) == THREE
    assert worlds.home.query(ITEMS) == PAIRS
    rows = [worlds.home.row(plan, number) for number in (1, 2, 3)]
    assert [row.status for row in rows] == [ChunkStatus.COMPLETED] * 3
    assert sorted(load for row in rows for load in row.loads) == [load for (load,) in loads(worlds.home)]
    assert not set(loads(worlds.home)) & set(loads(worlds.look))
    assert worlds.home.query(
        "SELECT count(*) FROM @events e JOIN @_dlt_loads l ON l.load_id = e._dlt_load_id"
    ) == [(3,)]
    # The other dataset is as it was, and a run has nothing to do at home.
    assert worlds.look.query(ITEMS) == PAIRS
    assert worlds.home.leftovers() == []
    again = worlds.home.backfill(APPEND)
    assert [outcome.loaded for outcome in worlds.home.run(again, again.plan())] == [False] * 3


@pytest.mark.parametrize("strategy", ["delete-insert", "upsert"])
def test_what_is_merged_replaces_the_rows_of_its_keys(worlds: Worlds, strategy: str) -> None:
    source = source_of(
        [{key: value for key, value in row.items() if key != "gone"} for row in changes()],
        write_disposition={"disposition": "merge", "strategy": strategy},
        primary_key="id",
    )
    # At home there is an older version of some keys, with other nested rows.
    old = source_of(
        [{"id": number, "at": day(-3), "order": -1, "items": [{"sku": "old"}]} for number in range(1, 30)],
        write_disposition={"disposition": "merge", "strategy": strategy},
        primary_key="id",
    )
    before = replace(worlds.home.backfill(old), window=Window(start=day(-3, 0), end=day(-2, 0)))
    plan = before.plan()
    before.seed(plan)
    worlds.home.run(before, plan)
    promotion, plan = worlds.loaded(source)
    worlds.home.run(promotion, plan, 3, 1, 2)
    assert worlds.home.query(IDS) == worlds.look.query(IDS)
    assert len(worlds.home.query(IDS)) > 80
    assert worlds.home.query(ITEMS) == worlds.look.query(ITEMS)
    assert worlds.home.query("SELECT count(*) FROM @events__items") == worlds.look.query(
        "SELECT count(*) FROM @events__items"
    )


@pytest.mark.parametrize("step", ["load_stage", "migrate", "publish"])
def test_an_attempt_that_dies_leaves_nothing_and_the_next_one_moves_all(
    worlds: Worlds, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    promotion, plan = worlds.loaded(APPEND)
    where = promote_module if step == "load_stage" else attempt_module
    whole = getattr(where, step)

    def dies(*arguments: Any, **more: Any) -> None:
        if step == "publish":
            # In the midst of its transaction.
            more["on_locked"] = dies_there
        whole(*arguments, **more)
        raise RuntimeError(f"died at {step}")

    def dies_there() -> None:
        raise RuntimeError(f"died at {step}")

    with monkeypatch.context() as patch:
        patch.setattr(where, step, dies)
        with pytest.raises(AttemptError, match=f"died at {step}"):
            worlds.home.run(promotion, plan, 1)
    assert worlds.home.row(plan).status is ChunkStatus.FAILED
    assert not worlds.home.target_has("events") or worlds.home.query(IDS) == []
    worlds.home.run(promotion, plan)
    assert worlds.home.query(IDS) == THREE
    assert worlds.home.query(ITEMS) == PAIRS
    assert worlds.home.leftovers() == []


def test_an_attempt_whose_claim_was_taken_publishes_nothing(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    promotion, plan = worlds.loaded(APPEND)
    stolen: list[str] = []

    def late(*arguments: Any, **more: Any) -> Any:
        if not stolen:
            stolen.append(steal(worlds.home, plan).token)
        return publish(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(attempt_module, "publish", late)
        with pytest.raises(Exception, match="thief:1"):
            worlds.home.run(promotion, plan, 1)
    assert worlds.home.query(IDS) == []
    assert worlds.home.row(plan).claim_token == stolen[0]


def test_one_chunk_may_be_made_of_several_there(worlds: Worlds) -> None:
    worlds.look.run(*worlds.look.seeded(APPEND))
    whole = replace(worlds.home.backfill(APPEND), chunk=ChunkSize.parse("3d"))
    promotion = worlds.promotion(whole)
    plan = promotion.plan()
    promotion.seed(plan)
    [outcome] = worlds.home.run(promotion, plan)
    assert outcome.records == 9
    assert worlds.home.query(IDS) == THREE


def test_a_chunk_that_cuts_one_there_is_refused_and_moves_nothing(worlds: Worlds) -> None:
    looked = replace(worlds.look.backfill(APPEND), chunk=ChunkSize.parse("2d"))
    plan = looked.plan()
    looked.seed(plan)
    worlds.look.run(looked, plan)
    promotion = worlds.promotion(worlds.home.backfill(APPEND))
    plan = promotion.plan()
    promotion.seed(plan)
    with pytest.raises(PromoteError, match="reaches beyond 2024-01-01T00:00:00"):
        worlds.home.run(promotion, plan, 1)
    assert not worlds.home.target_has("events")


def test_a_window_that_is_not_there_is_refused_by_what_is_missing(worlds: Worlds) -> None:
    promotion = worlds.promotion(worlds.home.backfill(APPEND))
    with pytest.raises(PromoteError, match=r"'web_look' .* has not completed 2024-01-01 → 2024-01-04 of"):
        promotion.plan()
    worlds.look.run(*worlds.look.seeded(APPEND), 1, 3)
    with pytest.raises(PromoteError, match=r"not completed 2024-01-02 → 2024-01-03 of") as refusal:
        promotion.plan()
    assert refusal.value.exit_code == 2
    with worlds.home.target.connect(5) as session:
        assert "web_raw" not in worlds.home.target.dialect.schemas(session, "web_raw")


def test_a_chunk_that_is_loaded_again_there_meanwhile_is_not_moved(worlds: Worlds) -> None:
    promotion, plan = worlds.loaded(APPEND)
    looked = worlds.look.backfill(APPEND)
    with worlds.look.target.connect(5) as session:
        looked.runner.restate(session, plan.backfill_id, ["000000"])
    with pytest.raises(PromoteError, match=r"not completed 2024-01-01 → 2024-01-02 of"):
        worlds.home.run(promotion, plan, 1)


def test_columns_and_tables_that_only_one_side_has_stay(worlds: Worlds) -> None:
    """Home has had day 4 by itself, with a column of its own; the window there brings another and a table."""
    home = source_of([{"id": 4, "at": day(4), "order": 40, "mine": "x"}])
    earlier = replace(worlds.home.backfill(home), window=Window(start=day(4, 0), end=day(5, 0)))
    plan = earlier.plan()
    earlier.seed(plan)
    worlds.home.run(earlier, plan)
    theirs = source_of([{**event, "yours": "y"} for event in events(3)])
    promotion, plan = worlds.loaded(theirs)
    worlds.home.run(promotion, plan)
    assert worlds.home.query("SELECT id, mine, yours FROM @events ORDER BY id") == [
        (1, None, "y"),
        (2, None, "y"),
        (3, None, "y"),
        (4, "x", None),
    ]
    assert worlds.home.query(ITEMS) == PAIRS
    # A load after it knows all of them.
    later = replace(worlds.home.backfill(APPEND), window=Window(start=day(5, 0), end=day(6, 0)))
    plan = later.plan()
    later.seed(plan)
    worlds.home.run(later, plan)
    assert len(worlds.home.query(IDS)) == 5


def test_a_column_of_another_type_is_refused(worlds: Worlds) -> None:
    home = source_of([{"id": 4, "at": day(4), "order": "forty"}])
    earlier = replace(worlds.home.backfill(home), window=Window(start=day(4, 0), end=day(5, 0)))
    plan = earlier.plan()
    earlier.seed(plan)
    worlds.home.run(earlier, plan)
    promotion, plan = worlds.loaded(APPEND)
    with pytest.raises(PromoteError, match=r"events.order is bigint, and text in web_raw"):
        worlds.home.run(promotion, plan, 1)
    assert worlds.home.query("SELECT id FROM @events") == [(4,)]


def test_rows_that_delete_others_cannot_be_promoted(worlds: Worlds) -> None:
    source = changing("delete-insert")
    worlds.look.run(*worlds.look.seeded(source))
    with pytest.raises(PromoteError, match=r"events has rows that delete others \(gone\)"):
        worlds.promotion(worlds.home.backfill(source)).plan()


def test_rows_that_do_not_say_their_load_are_told_by_their_cursor(worlds: Worlds) -> None:
    def views() -> Any:
        @dlt.resource(name="events")
        def tables(at: Any = dlt.sources.incremental("at", initial_value=EPOCH)) -> Any:
            yield pyarrow.table({"id": [1, 2, 3], "at": [day(1), day(2), day(3)]})

        return tables

    promotion, plan = worlds.loaded(views)
    assert [outcome.records for outcome in worlds.home.run(promotion, plan)] == [1, 1, 1]
    assert worlds.home.query("SELECT id FROM @events ORDER BY id") == [(1,), (2,), (3,)]


def test_rows_that_nothing_tells_apart_cannot_be_promoted(worlds: Worlds) -> None:
    def views(since: Any) -> Any:
        @dlt.resource(name="events")
        def tables() -> Any:
            yield pyarrow.table({"id": [1], "at": [since]})

        return tables

    spec: dict[str, Any] = {"bounded_by": "kwargs", "arguments": {"since": "{chunk.start}"}}
    worlds.look.run(*worlds.look.seeded(views, days=1, **spec))
    with pytest.raises(PromoteError, match="table events: it has no column _dlt_load_id"):
        worlds.promotion(worlds.home.backfill(views, days=1, **spec)).plan()


def test_a_window_without_rows_is_promoted_too(worlds: Worlds) -> None:
    promotion, plan = worlds.loaded(source_of([]), on_empty="ok")
    worlds.home.run(promotion, plan)
    assert [worlds.home.row(plan, number).records_loaded for number in (1, 2, 3)] == [0, 0, 0]


def test_a_restated_chunk_is_replaced_by_a_second_promotion(worlds: Worlds) -> None:
    promotion, plan = worlds.loaded(APPEND)
    worlds.home.run(promotion, plan)
    with worlds.home.target.connect(5) as session:
        promotion.runner.restate(session, plan.backfill_id, ["000001"])
    [outcome] = worlds.home.run(promotion, plan, 2)
    assert outcome.records == 3
    assert worlds.home.query(IDS) == THREE
    assert worlds.home.query(ITEMS) == PAIRS

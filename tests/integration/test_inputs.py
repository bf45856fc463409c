"""A source that is not the one that was planned is refused, and nothing is skipped in its name."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.choice import Choice, Chosen
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.exceptions import PlanConflictError
from tests.support.sources import events, shop, source_of
from tests.support.worlds import IDS, World


@pytest.fixture
def world(target: Target, settings: Settings) -> World:
    return World(target, settings)


def test_another_resource_of_the_same_name_of_source_is_refused(world: World) -> None:
    """Two resources of one module have one identity: the second would find its chunks completed."""
    backfill, plan = world.seeded(shop("clicks"))
    world.run(backfill, plan)
    other = world.backfill(shop("views"))
    with pytest.raises(PlanConflictError) as caught:
        other.plan()
    message = str(caught.value)
    assert "resources is 'clicks' in the ledger and 'views' here" in message
    assert "source_name" in message
    named = world.backfill(shop("views"), name="views")
    renamed = named.plan()
    named.seed(renamed)
    assert [outcome.loaded for outcome in world.run(named, renamed)] == [True] * 3
    assert world.query("SELECT count(*) FROM @views") == [(3,)]


def gaps_of(backfill: Backfill, **asked: Any) -> Chosen:
    """What strategy gaps chooses of the same window."""
    window = backfill.window
    return Choice(
        source=backfill.source,
        target=backfill.target,
        chunk=backfill.chunk,
        strategy="gaps",
        start=window.start,
        end=window.end,
        settings=backfill.settings,
        **asked,
    ).make()


@pytest.mark.parametrize(
    ("names", "resources"), [(("views",), ()), (("clicks", "views"), ("views",))], ids=["module", "selected"]
)
def test_what_another_resource_has_loaded_covers_nothing(
    world: World, names: tuple[str, ...], resources: tuple[str, ...]
) -> None:
    """Nor in another window, whose backfill has another id."""
    world.run(*world.seeded(shop("clicks")))
    wider = world.backfill(shop(*names), days=4, resources=resources)
    with pytest.raises(PlanConflictError, match="resources is 'clicks' in the ledger and 'views' here"):
        wider.plan()
    assert wider.gaps() == (wider.window.interval,)
    chosen = gaps_of(wider, lookback=3)
    assert ([each.window for each in chosen.windows], chosen.again) == ([wider.window], ())
    world.run(*world.seeded(shop(*names), days=4, resources=resources, name="views"))
    assert world.query("SELECT count(*) FROM @views") == [(3,)]


def test_what_another_resource_has_loaded_since_covers_nothing(world: World) -> None:
    """Both are planned before either has loaded anything, so that only a claim can tell."""
    wider, plan = world.seeded(shop("views"), days=4)
    world.run(*world.seeded(shop("clicks")))
    with pytest.raises(PlanConflictError, match="resources is 'clicks' in the ledger and 'views' here"):
        world.run(wider, plan, 1)
    assert not world.target_has("views")
    assert {row.status for row in wider.rows(plan)} == {ChunkStatus.PENDING}


def test_a_source_goes_on_that_has_got_a_resource(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.run(*world.seeded(shop("orders")))
    wider = world.backfill(shop("orders", "refunds"), days=4)
    with caplog.at_level(logging.WARNING):
        assert wider.survey(wider.plan()).covered == 3
    assert "was planned before the source had refunds: chunks that were completed then" in caplog.text
    [gap] = wider.gaps()
    assert gaps_of(wider).windows[0].window.interval == gap


def test_a_resource_that_came_later_is_warned_of(world: World, caplog: pytest.LogCaptureFixture) -> None:
    backfill, plan = world.seeded(shop("orders"))
    world.run(backfill, plan)
    with caplog.at_level(logging.WARNING):
        world.backfill(shop("orders", "refunds")).plan()
    [warning] = [record.getMessage() for record in caplog.records if "refunds" in record.getMessage()]
    assert warning.startswith(f"backfill {plan.backfill_id} was planned before the source had refunds")


@pytest.mark.parametrize("edited", ["source", "resources", "other resource"])
def test_a_chunk_is_run_with_the_source_that_it_was_planned_with(world: World, edited: str) -> None:
    """A DAG may be edited between the plan and a retry of one of its mapped tasks."""
    backfill, plan = world.seeded(source_of(events()))
    spec = {
        "source": SourceSpec(reference=source_of(events(), name="shop_events")),
        "resources": SourceSpec(reference=source_of(events()), resources=("events",)),
        "other resource": SourceSpec(reference=shop("views"), name="web_events"),
    }[edited]
    with pytest.raises(PlanConflictError, match=f"backfill {plan.backfill_id} exists with different inputs"):
        world.run(replace(backfill, source=spec), plan, 1)
    row = world.row(plan)
    assert (row.status, row.will_retry) == (ChunkStatus.FAILED, False)
    assert not world.target_has("events")
    assert not world.target_has("views")
    world.run(backfill, plan, 1)
    assert world.query(IDS) == [(1, 10)]
    assert world.leftovers() == []

"""A source that is not the one that was planned is refused, and nothing is skipped in its name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dlt
import pytest
from dlt.extract.source import DltSource

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.exceptions import PlanConflictError
from tests.support.sources import EPOCH, events, source_of
from tests.support.worlds import IDS, World


@pytest.fixture
def world(target: Target, settings: Settings) -> World:
    return World(target, settings)


def shop(*names: str) -> Callable[[], DltSource]:
    """A source with a resource of each name."""

    @dlt.source(name="shop")
    def source() -> Any:
        for name in names:

            @dlt.resource(name=name)
            def rows(at: Any = dlt.sources.incremental("at", initial_value=EPOCH)) -> Any:
                yield from events(3)

            yield rows

    return source


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

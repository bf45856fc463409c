"""What replaces chunks has all that they had: the rows of no other resource are lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.window import ChunkSize
from airflow_provider_backfill.exceptions import PlanConflictError
from tests.support.sources import shop
from tests.support.worlds import World


@pytest.fixture
def world(target: Target, settings: Settings) -> World:
    return World(target, settings)


def by(backfill: Backfill, size: str) -> Backfill:
    """The same, in chunks of another size, which replace what lies inside them."""
    return replace(backfill, chunk=ChunkSize.parse(size), overlap="reload")


def counts(world: World) -> list[int]:
    """Rows of both resources."""
    return [world.query(f"SELECT count(*) FROM @{name}")[0][0] for name in ("clicks", "views")]


def test_chunks_of_more_resources_are_not_reloaded_by_fewer(world: World) -> None:
    both = shop("clicks", "views")
    world.run(*world.seeded(both, days=2))
    with pytest.raises(PlanConflictError, match="resources is 'clicks,views' in the ledger and 'views' here"):
        by(world.backfill(both, resources=("views",)), "3d").plan()
    assert counts(world) == [2, 2]
    # With both it is allowed.
    wider = by(world.backfill(both), "3d")
    plan = wider.plan()
    wider.seed(plan)
    assert [outcome.loaded for outcome in world.run(wider, plan)] == [True]
    assert counts(world) == [3, 3]


def test_nor_when_they_were_loaded_after_the_plan_was_made(world: World) -> None:
    both = shop("clicks", "views")
    fewer = by(world.backfill(both, resources=("views",)), "3d")
    plan = fewer.plan()
    fewer.seed(plan)
    world.run(*world.seeded(both, days=2))
    with pytest.raises(PlanConflictError, match="resources is 'clicks,views' in the ledger and 'views' here"):
        world.run(fewer, plan, 1)
    assert counts(world) == [2, 2]
    assert world.row(plan).attempt is None


def test_a_source_that_has_lost_a_resource_replaces_no_version_that_had_it(world: World) -> None:
    backfill, plan = world.seeded(shop("clicks", "views"))
    world.run(backfill, plan)
    with world.target.connect(5) as session:
        backfill.runner.restate(session, plan.backfill_id, ["000000"])
    edited = replace(backfill, source=SourceSpec(reference=shop("views")))
    with pytest.raises(PlanConflictError, match="resources is 'clicks,views' in the ledger and 'views' here"):
        world.run(edited, plan, 1)
    assert counts(world) == [3, 3]
    world.run(backfill, plan, 1)
    assert counts(world) == [3, 3]

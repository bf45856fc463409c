"""A DAG that is scheduled on an asset is told what was backfilled, once all of it is there."""

from __future__ import annotations

import pytest

from tests.support.ledgers import wait_until
from tests.system.conftest import PATIENCE, World

pytestmark = [pytest.mark.airflow2, pytest.mark.timeout(600)]

PRODUCER, CONSUMER = "example_assets", "example_assets_consumer"


def test_the_consumer_gets_the_window_that_is_covered(world: World) -> None:
    world.airflow.wait_for_dags(PRODUCER, CONSUMER)
    world.outage.write_text("2026-01-03")
    first = world.run(PRODUCER)
    assert first.state == "failed"
    second = world.run(PRODUCER)
    assert second.state == "success"
    backfill_id = world.report(PRODUCER, second, "web_events")["backfill_id"]

    def told() -> list[str]:
        world.airflow.check()
        return world.airflow.api.run_ids(CONSUMER)

    wait_until(told, PATIENCE)
    [run_id] = told()
    assert world.wait(CONSUMER, run_id).state == "success"
    # The run that left a chunk out has made no event.
    assert world.airflow.api.xcom(CONSUMER, run_id, "windows_to_rebuild") == [
        {
            "backfill_id": backfill_id,
            "start": "2026-01-01T00:00:00+00:00",
            "end": "2026-01-06T00:00:00+00:00",
            "chunks": 5,
            "records": 5,
        }
    ]

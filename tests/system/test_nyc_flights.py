"""Real input through a real scheduler: three days of New York's flights, the second of which fails once."""

from __future__ import annotations

import pytest

from tests.system.conftest import World

DAG_ID = "example_nyc_flights"
FLIGHTS = [842, 943, 914]


@pytest.mark.timeout(300)
def test_three_days_of_new_york(world: World) -> None:
    world.outage.write_text("2013-01-02")
    run = world.run(DAG_ID, start="2013-01-01", end="2013-01-04")
    assert run.state == "success"
    assert [chunk.try_number for chunk in run.of("flights.chunk")] == [1, 2, 1]
    assert [row.records_loaded for row in world.ledger("duckdb", "nyc")] == FLIGHTS
    [(rows, distinct)] = world.query(
        "duckdb",
        "SELECT count(*), count(DISTINCT (time_hour, carrier, flight, origin)) FROM nyc.flights",
    )
    assert (rows, distinct) == (sum(FLIGHTS), sum(FLIGHTS))
    # Midnight in New York, not in UTC, is where the days meet.
    days = world.query(
        "duckdb",
        "SELECT day, count(*) FROM nyc.flights GROUP BY day ORDER BY day",
    )
    assert days == [(1, 842), (2, 943), (3, 914)]

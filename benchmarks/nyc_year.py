"""A year of departures from New York, day by day, through a real Airflow onto Postgres.

    python -m benchmarks.nyc_year

365 days of New York, two of them not 24 hours long, two chunks at once. Prints one JSON document; exits 1
when anything differs from what has to come out. It starts what it needs on 127.0.0.1, and stops it.
"""

from __future__ import annotations

import json
import sys
import time

from tests.support import environment as environment
from tests.support.airflow import ROOT, LocalAirflow
from tests.support.postgres import Postgres, fresh_database
from tests.support.tasks import postgres_connection

DAG_ID = "example_nyc_flights"
ROWS = 336_776
PATIENCE = 4 * 3_600.0
LENGTHS = (
    "SELECT extract(epoch FROM chunk_to - chunk_from) / 3600, count(*)"
    " FROM nyc._dlt_backfills WHERE status = 'completed' GROUP BY 1 ORDER BY 1"
)


def main() -> int:
    with (
        Postgres() as postgres,
        fresh_database(postgres) as url,
        LocalAirflow(
            dags=ROOT / "dags_examples",
            database_url=postgres.create_database(),
            connections={"warehouse": postgres_connection(url)},
        ) as airflow,
    ):
        airflow.wait_for_dags(DAG_ID)
        began = time.monotonic()
        run_id = airflow.api.trigger(DAG_ID, start="2013-01-01", end="2014-01-01")
        state = airflow.api.wait(DAG_ID, run_id, timeout=PATIENCE)
        seconds = time.monotonic() - began
        report = airflow.api.xcom(DAG_ID, run_id, "flights.report")
        tries = [task.try_number for task in airflow.api.tasks(DAG_ID, run_id)]
        database = url.rpartition("/")[2]
        [(rows,)] = postgres.execute("SELECT count(*) FROM nyc.flights", database=database)
        [(at_once,)] = postgres.execute(AT_ONCE, database=database)
        lengths = [[float(hours), count] for hours, count in postgres.execute(LENGTHS, database=database)]
    found = {
        "state": state,
        "rows": rows,
        "chunks": report["total"],
        "completed": report["completed"],
        "chunks by hours": lengths,
        "at once, at most": at_once,
        "tries, at most": max(tries),
        "seconds": round(seconds),
        "seconds a chunk": round(seconds / report["total"], 2),
    }
    print(json.dumps(found, indent=2))
    right = (
        state == "success"
        and rows == ROWS
        and report["completed"] == report["total"] == 365
        and lengths == [[23.0, 1], [24.0, 363], [25.0, 1]]
        and at_once <= 2
    )
    return 0 if right else 1


#: How many chunks were under way at the start of another one.
AT_ONCE = (
    "SELECT max(n) FROM (SELECT (SELECT count(*) FROM nyc._dlt_backfills b"
    " WHERE b.claimed_at <= a.claimed_at AND b.completed_at > a.claimed_at) AS n FROM nyc._dlt_backfills a) c"
)

if __name__ == "__main__":
    sys.exit(main())

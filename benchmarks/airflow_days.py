"""A month of flights, day by day, through Airflow 3.3 onto Postgres: the operator against a DAG by hand.

LocalExecutor, two tasks at once. Each round is another month of 31 days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta

import psutil

from benchmarks.harness import Cost, Figure, Scale, compared
from tests.support.airflow import ROOT, LocalAirflow
from tests.support.postgres import Postgres, fresh_database
from tests.support.tasks import postgres_connection

GROUP = "airflow_days"
BUDGET = 1.10
MONTHS = (1, 3, 5, 7, 8, 10, 12)
PATIENCE = 3_600.0
#: What stands in each DAG by hand.
BY_HAND = {"by_hand_tuned": "by hand, tuned", "by_hand": "by hand"}


def figures(scale: Scale) -> Iterator[Figure]:
    days = 6 if scale.quick else 31
    with (
        Postgres() as server,
        fresh_database(server) as url,
        LocalAirflow(
            dags=ROOT / "benchmarks" / "dags",
            database_url=server.create_database(),
            connections={"warehouse": postgres_connection(url)},
            environment={"PYTHONPATH": f"{ROOT}:{ROOT / 'dags_examples'}"},
        ) as airflow,
    ):
        airflow.wait_for_dags("ours", *BY_HAND)
        starts = [date(2013, month, 1) for month in MONTHS][: scale.rounds + 1]
        for dag_id, against in BY_HAND.items():
            yield compared(
                GROUP,
                f"{days} days of flights, postgres",
                _program(airflow, "ours", starts, days),
                _program(airflow, dag_id, starts, days),
                against=against,
                most=BUDGET,
                rounds=len(starts) - 1,
            )
            _forget(server, url)


def _forget(server: Postgres, url: str) -> None:
    """Empty the warehouse; the windows are to be loaded again."""
    database = url.rpartition("/")[2]
    counts = {
        name: server.execute(f"SELECT count(*) FROM {name}.flights", database=database)
        for (name,) in server.execute(
            "SELECT table_schema FROM information_schema.tables WHERE table_name = 'flights'",
            database=database,
        )
    }
    if len(set(map(str, counts.values()))) != 1:
        raise RuntimeError(f"the DAGs have loaded different rows: {counts}")
    for name in counts:
        server.execute(f"DROP SCHEMA {name} CASCADE", database=database)


def _program(airflow: LocalAirflow, dag_id: str, starts: Sequence[date], days: int) -> Callable[[int], Cost]:
    def program(number: int) -> Cost:
        start = starts[number]
        used = cpu_of_descendants()
        run_id = airflow.api.trigger(dag_id, start=str(start), end=str(start + timedelta(days=days)))
        state = airflow.api.wait(dag_id, run_id, timeout=PATIENCE)
        if state != "success":
            raise RuntimeError(f"DAG run of {dag_id} ended as {state}\n{airflow.tail()}")
        run = airflow.api.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}")
        began, ended = (datetime.fromisoformat(run[name]) for name in ("start_date", "end_date"))
        return Cost(wall=(ended - began).total_seconds(), cpu=cpu_of_descendants() - used)

    return program


def cpu_of_descendants() -> float:
    """Of all processes below this one, and of those that they have waited for, seconds."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:
            # It has just ended, and counts with its parent.
            continue
    return total

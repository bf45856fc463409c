"""One Airflow for all system tests, with a warehouse on each database."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.records import ChunkRow
from airflow_provider_backfill.engine.targets import target_from_url
from tests.support.airflow import ROOT, LocalAirflow
from tests.support.airflow_api import TaskInstance
from tests.support.postgres import Postgres
from tests.support.statsd import StatsdServer

#: Stands in the warehouse's password among signs that URLs, JSON and logs write in other ways.
NEEDLE = "n33dle7c1f"
PASSWORD = f"p@:/?#[]%20 &=+'\"\\{NEEDLE}é"
WAREHOUSES = ("duckdb", "postgres")
#: How long one DAG run of a few chunks may take, seconds.
PATIENCE = 240.0


@dataclass(frozen=True, kw_only=True)
class Run:
    """A DAG run that has ended."""

    run_id: str
    state: str
    tasks: list[TaskInstance]

    def of(self, task_id: str) -> list[TaskInstance]:
        return [task for task in self.tasks if task.task_id == task_id]


@dataclass(frozen=True, kw_only=True)
class World:
    """A running Airflow, its warehouses, and a source that can be made to fail."""

    airflow: LocalAirflow
    outage: Path
    warehouses: dict[str, str]
    statsd: StatsdServer

    def run(self, dag_id: str, **params: Any) -> Run:
        """Trigger a DAG and wait for the end."""
        return self.wait(dag_id, self.airflow.api.trigger(dag_id, **params))

    def wait(self, dag_id: str, run_id: str) -> Run:
        state = self.airflow.api.wait(dag_id, run_id, timeout=PATIENCE)
        return Run(run_id=run_id, state=state, tasks=self.airflow.api.tasks(dag_id, run_id))

    def report(self, dag_id: str, run: Run, group: str) -> dict[str, Any]:
        """What the report task pushed."""
        found: dict[str, Any] = self.airflow.api.xcom(dag_id, run.run_id, f"{group}.report")
        return found

    def target(self, warehouse: str, dataset_name: str) -> Target:
        return target_from_url(self.warehouses[warehouse], dataset_name)

    def query(self, warehouse: str, sql: str) -> list[tuple[Any, ...]]:
        with self.target(warehouse, "any").connect(30) as session:
            return session.execute(sql)

    def ledger(self, warehouse: str, dataset_name: str) -> list[ChunkRow]:
        target = self.target(warehouse, dataset_name)
        with target.connect(30) as session:
            return Ledger(session, target).dataset_chunks()


@pytest.fixture(scope="session")
def world(postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An Airflow with the example DAGs."""
    home = tmp_path_factory.mktemp("warehouse")
    duckdb_file, outage = home / "warehouse.duckdb", home / "outage"
    quoted = PASSWORD.replace("'", "''")
    postgres_server.execute(f"CREATE ROLE loader LOGIN PASSWORD '{quoted}'")
    postgres_server.execute("CREATE DATABASE warehouse OWNER loader")
    login = {
        "conn_type": "postgres",
        "host": "127.0.0.1",
        "port": postgres_server.port,
        "login": "loader",
        "password": PASSWORD,
    }
    duckdb = {"conn_type": "duckdb", "host": str(duckdb_file)}
    dags = tmp_path_factory.mktemp("dags")
    places = [ROOT / "dags_examples", ROOT / "tests" / "system" / "dags"]
    for place in places:
        (dags / place.name).symlink_to(place)
    with (
        StatsdServer() as statsd,
        LocalAirflow(
            dags=dags,
            database_url=postgres_server.create_database(),
            connections={
                "warehouse": json.dumps(duckdb),
                "duckdb": json.dumps(duckdb),
                "postgres": json.dumps({**login, "schema": "warehouse"}),
                "absent": json.dumps({**login, "schema": "absent"}),
            },
            environment={
                "EXAMPLE_OUTAGE": str(outage),
                "PYTHONPATH": os.pathsep.join(map(str, [ROOT, *places])),
                "AIRFLOW__METRICS__STATSD_ON": "True",
                "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
                "AIRFLOW__METRICS__STATSD_PORT": str(statsd.port),
                "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
                # Tags are dropped by default that Airflow has in the names of its own.
                "AIRFLOW__METRICS__STATSD_DISABLED_TAGS": "",
            },
        ) as airflow,
    ):
        airflow.wait_for_dags("example_nyc_flights", "example_web_events", "steered_stop")
        yield World(
            airflow=airflow,
            outage=outage,
            statsd=statsd,
            warehouses={"duckdb": f"duckdb:///{duckdb_file}", "postgres": postgres_server.url("warehouse")},
        )

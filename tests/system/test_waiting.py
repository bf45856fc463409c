"""A chunk that somebody else holds, under a real scheduler and triggerer with room for one task."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.targets import target_from_url
from tests.support.airflow import LocalAirflow
from tests.support.airflow_api import TaskInstance
from tests.support.ledgers import LONG, end_leases, opened, plan, seeded, take, wait_until
from tests.support.postgres import Postgres, fresh_database
from tests.support.tasks import postgres_connection, rows_of

pytestmark = [pytest.mark.airflow2, pytest.mark.timeout(400)]

#: Seconds that a step of the scheduler may take on a busy machine.
PATIENCE = 120.0
PLAN = plan(days=3)
CHUNK = "web_events.chunk"

SOURCE = """
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import dlt


@dlt.source(name="web_events")
def page_views(folder):
    @dlt.resource(name="page_views")
    def rows(at=dlt.sources.incremental("at", initial_value=datetime(2020, 1, 1, tzinfo=UTC))):
        # A folder that was not rendered is not there.
        assert Path(folder).is_dir(), folder
        victim = Path(folder, "victim")
        if at.initial_value.day == 1 and victim.exists():
            victim.rename(Path(folder, f"pid-{os.getpid()}"))
            time.sleep(300)
        for number in range(1, 7):
            yield {"id": number, "at": datetime(2026, 1, number, 12, tzinfo=UTC)}

    return rows
"""
# Two chunks at once, since Airflow 3.3 counts a deferred one among them.
DAG = """
from datetime import timedelta

from airflow_provider_backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import DAG

for dag_id, conn_id in (("held", "from_environment"), ("killed", "from_database")):
    with DAG(dag_id, schedule=None, params={{"folder": {folder!r}}}):
        ChunkedBackfillOperator.expand_window(
            task_id="web_events", source="waiting_source:page_views", conn_id=conn_id,
            dataset_name=dag_id + "_raw", start="2026-01-01", end="2026-01-04", chunk="1d",
            max_active_chunks=2, retries=2, retry_delay=timedelta(seconds=1),
            source_kwargs={{"folder": "{{{{ params.folder }}}}"}},
        )
"""


@dataclass(frozen=True, kw_only=True)
class Crowded:
    """An Airflow that runs one task at a time, and a warehouse."""

    airflow: LocalAirflow
    url: str
    folder: Path

    def target(self, dag_id: str) -> Target:
        return target_from_url(self.url, f"{dag_id}_raw")

    def chunks(self, dag_id: str, run_id: str) -> list[TaskInstance]:
        return [task for task in self.airflow.api.tasks(dag_id, run_id) if task.task_id == CHUNK]

    def said(self, dag_id: str) -> str:
        """The logs of the chunks, their triggers' included."""
        return "".join(self.airflow.task_logs(dag_id, CHUNK).values())

    def until(self, dag_id: str, run_id: str, come: Callable[[list[str | None]], bool]) -> None:
        """Wait until the states of the chunks are so."""

        def look() -> bool:
            self.airflow.check()
            return come([chunk.state for chunk in self.chunks(dag_id, run_id)])

        wait_until(look, PATIENCE)


@pytest.fixture(scope="module")
def crowded(postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowded]:
    folder = tmp_path_factory.mktemp("waiting")
    dags = folder / "dags"
    dags.mkdir()
    (dags / "waiting.py").write_text(DAG.format(folder=str(folder)))
    (folder / "waiting_source.py").write_text(SOURCE)
    with (
        fresh_database(postgres_server) as url,
        LocalAirflow(
            dags=dags,
            database_url=postgres_server.create_database(),
            connections={"from_environment": postgres_connection(url)},
            environment={
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), str(folder)]),
                # A killed worker's chunk stays held until the test ends its lease.
                "AIRFLOW__CHUNKED_BACKFILL__LEASE_SECONDS": str(LONG),
            },
            parallelism=1,
        ) as airflow,
    ):
        airflow.command("connections", "add", "from_database", "--conn-json", postgres_connection(url))
        airflow.wait_for_dags("held", "killed")
        yield Crowded(airflow=airflow, url=url, folder=folder)


def ids(target: Target) -> list[int]:
    with target.connect(30) as session:
        rows = session.execute(f"SELECT id FROM {target.dataset_name}.page_views ORDER BY id")
    return [number for (number,) in rows]


def waits_without_a_slot(states: list[str | None]) -> bool:
    """The first chunk is deferred while the others, which need the one slot there is, run to their ends."""
    return states == ["deferred", "success", "success"]


def could_look(said: str) -> bool:
    """Whether no look failed; one that took too long on a busy machine is made again."""
    return not re.search(r"cannot look at chunk \d+: (?!TimeoutError)", said)


def test_a_held_chunk_leaves_its_slot_to_others(crowded: Crowded) -> None:
    target = crowded.target("held")
    seeded(target, PLAN)
    with opened(target) as ledger:
        claim = take(ledger, PLAN, name="elsewhere:1")
    run_id = crowded.airflow.api.trigger("held")
    crowded.until("held", run_id, waits_without_a_slot)
    with opened(target) as ledger:
        ledger.fail(claim, "gave up")
    assert crowded.airflow.api.wait("held", run_id, timeout=PATIENCE) == "success"
    assert [chunk.try_number for chunk in crowded.chunks("held", run_id)] == [1, 1, 1]
    assert [(row.status, row.attempt) for row in rows_of(target)] == [
        ("completed", 2),
        ("completed", 1),
        ("completed", 1),
    ]
    assert ids(target) == [1, 2, 3]
    said = crowded.said("held")
    assert said.count("waiting, chunk 1 is held by elsewhere:1 until ") == 1
    assert could_look(said)


def test_the_retry_of_a_killed_task_waits_for_the_lease(crowded: Crowded, postgres_server: Postgres) -> None:
    target = crowded.target("killed")
    (crowded.folder / "victim").touch()
    run_id = crowded.airflow.api.trigger("killed")
    wait_until(lambda: list(crowded.folder.glob("pid-*")), PATIENCE)
    [victim] = crowded.folder.glob("pid-*")
    os.kill(int(victim.name.removeprefix("pid-")), signal.SIGKILL)
    crowded.until("killed", run_id, waits_without_a_slot)
    # One try was killed. The wait is part of the next.
    assert crowded.chunks("killed", run_id)[0].try_number == 2
    end_leases(target)
    assert crowded.airflow.api.wait("killed", run_id, timeout=PATIENCE) == "success"
    assert [chunk.try_number for chunk in crowded.chunks("killed", run_id)] == [2, 1, 1]
    assert [(row.status, row.attempt) for row in rows_of(target)] == [
        ("completed", 2),
        ("completed", 1),
        ("completed", 1),
    ]
    assert ids(target) == [1, 2, 3]
    said = crowded.said("killed")
    assert could_look(said)
    assert postgres_server.password not in said

"""Running an operator without a scheduler: its context, and what it pushes."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.records import ChunkRow
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.operators.plan import BackfillPlanOperator
from airflow_provider_backfill.operators.report import BackfillReportOperator
from airflow_provider_backfill.version_compat import AIRFLOW_V_3_0_PLUS

if AIRFLOW_V_3_0_PLUS:
    from airflow.sdk.execution_time.context import OutletEventAccessors
else:
    from airflow.utils.context import OutletEventAccessors

WINDOW = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-06T00:00:00Z"}
#: The backfill of web_events over the window by day.
BACKFILL_ID = "d7a7c6e21e0d8ecb"
#: The module ``page_view_source``: six rows, a failure on 01-03 while the file ``outage`` is there, a pause.
SOURCE = """
import os
import time
from datetime import UTC, datetime

import dlt


@dlt.source(name="web_events")
def page_views(outage=None, pause=0.0):
    @dlt.resource(name="page_views")
    def rows(at=dlt.sources.incremental("at", initial_value=datetime(2020, 1, 1, tzinfo=UTC))):
        if outage and at.initial_value.day == 3 and os.path.exists(outage):
            os.remove(outage)
            raise RuntimeError("the API is down" + os.environ.get("LEAK", ""))
        if pause:
            print("the source reads", flush=True)
            time.sleep(pause)
        for number in range(1, 7):
            yield {"id": number, "at": datetime(2026, 1, number, 12, tzinfo=UTC)}

    return rows
"""


@dataclass(kw_only=True)
class FakeTaskInstance:
    """As much of a task instance as the operators use."""

    task_id: str
    dag_id: str = "a_dag"
    run_id: str = "a_run"
    map_index: int = -1
    try_number: int = 1
    max_tries: int = 0
    xcoms: dict[tuple[str, str], Any] = field(default_factory=dict)
    #: State of each mapped task beside it, by map index.
    states: dict[int, str | None] = field(default_factory=dict)

    def get_task_states(self, *, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, Any]:
        assert (dag_id, task_ids, run_ids) == (self.dag_id, [self.task_id], [self.run_id])
        return {self.run_id: {f"{self.task_id}_{index}": state for index, state in self.states.items()}}

    def xcom_push(self, *, key: str, value: Any) -> None:
        # Airflow stores JSON; what is none must not slip through.
        self.xcoms[self.task_id, key] = json.loads(json.dumps(value))

    def xcom_pull(self, *, task_ids: str, key: str) -> Any:
        return self.xcoms.get((task_ids, key))


def run_task(operator: Any, ti: FakeTaskInstance | None = None, **context: Any) -> Any:
    """Execute an operator; ``context`` adds to what it finds there."""
    ti = ti or FakeTaskInstance(task_id=operator.task_id)
    return operator.execute({**context_of(ti), **context})


def context_of(ti: FakeTaskInstance) -> Any:
    """As much of Airflow's context as the operators use."""
    return {"ti": ti, "task_instance": ti, "run_id": ti.run_id, "outlet_events": OutletEventAccessors()}


def duckdb_connection(path: str | os.PathLike[str]) -> str:
    """An Airflow connection to a DuckDB file, as ``AIRFLOW_CONN_*`` takes it."""
    return json.dumps({"conn_type": "duckdb", "host": os.fspath(path)})


def postgres_connection(url: str, **changes: Any) -> str:
    """An Airflow connection to the database of a libpq URI, as ``AIRFLOW_CONN_*`` takes it."""
    parts = urlsplit(url)
    fields = {
        "conn_type": "postgres",
        "host": parts.hostname,
        "port": parts.port,
        "login": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "schema": unquote(parts.path.removeprefix("/")),
    }
    return json.dumps({**fields, **changes})


class Tasks:
    """The three tasks of a group, run by hand in one DAG run."""

    def __init__(self, run_id: str = "a_run", **arguments: Any) -> None:
        self.run_id = run_id
        self.xcoms: dict[tuple[str, str], Any] = {}
        self.target = {"conn_id": "warehouse", "dataset_name": "web_raw"}
        self.source = {"source": "page_view_source:page_views", **self.target, **arguments}

    def ti(self, name: str, **changes: Any) -> FakeTaskInstance:
        return FakeTaskInstance(task_id=f"events.{name}", run_id=self.run_id, xcoms=self.xcoms, **changes)

    def plan(self, **changes: Any) -> list[dict[str, Any]]:
        arguments = {**self.source, **WINDOW, "chunk": "1d", **changes}
        planned = run_task(BackfillPlanOperator(task_id="plan", **arguments), self.ti("plan"))
        mapped: list[dict[str, Any]] = json.loads(json.dumps(planned))
        return mapped

    def chunk(self, mapped: dict[str, Any], index: int = 0, **changes: Any) -> dict[str, Any]:
        operator = ChunkedBackfillOperator(task_id="chunk", **self.source, **mapped)
        result: dict[str, Any] = run_task(operator, self.ti("chunk", map_index=index, **changes))
        return result

    def report(self, outlets: Sequence[Any] = (), **context: Any) -> dict[str, Any]:
        operator = BackfillReportOperator(
            task_id="report", plan_task_id="events.plan", outlets=list(outlets), **self.target
        )
        result: dict[str, Any] = run_task(operator, self.ti("report"), **context)
        return result


def rows_of(target: Target) -> list[ChunkRow]:
    """The whole ledger; nothing while there is none."""
    with target.connect(10) as session:
        ledger = Ledger(session, target)
        return ledger.dataset_chunks() if ledger.exists() else []


def ids_in(target: Target) -> list[int]:
    with target.connect(10) as session:
        return [number for (number,) in session.execute("SELECT id FROM web_raw.page_views ORDER BY id")]

"""Running an operator without a scheduler: its context, and what it pushes."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit


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

    def xcom_push(self, *, key: str, value: Any) -> None:
        # Airflow stores JSON; what is none must not slip through.
        self.xcoms[self.task_id, key] = json.loads(json.dumps(value))

    def xcom_pull(self, *, task_ids: str, key: str) -> Any:
        return self.xcoms.get((task_ids, key))


def run_task(operator: Any, ti: FakeTaskInstance | None = None, **context: Any) -> Any:
    """Execute an operator; ``context`` adds to what it finds there."""
    ti = ti or FakeTaskInstance(task_id=operator.task_id)
    return operator.execute({"ti": ti, "task_instance": ti, "run_id": ti.run_id, **context})


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

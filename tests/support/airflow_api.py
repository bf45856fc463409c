"""What tests and scripts ask a running Airflow over its REST API, on either line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

#: States that a DAG run does not leave by itself.
FINAL = frozenset({"success", "failed"})
_PAGE = 100


class AirflowError(RuntimeError):
    """The throw-away Airflow did not do what was asked; the text says what it said or logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInstance:
    """One task of a DAG run.

    Args:
        task_id: The task, with the groups it stands in.
        map_index: Its number among the mapped ones; -1 for a task that is not mapped.
        state: Airflow's word; None while it was not looked at yet.
        try_number: From 1; 0 when it has not run.
        label: What the UI shows instead of the map index, if the task gives a label.
    """

    task_id: str
    map_index: int
    state: str | None
    try_number: int
    label: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DagRun:
    """One run of a DAG.

    Args:
        run_id: Airflow's id of it.
        kind: Airflow's word for what began it, for example ``backfill``, ``scheduled``, ``manual``.
        state: Airflow's word.
        start: Where its data interval starts.
        end: Where that ends.
    """

    run_id: str
    kind: str
    state: str
    start: datetime
    end: datetime


class AirflowApi:
    """The REST API of a running Airflow: version 2 with a token (3.x), version 1 with a password (2.x).

    Args:
        address: For example ``http://127.0.0.1:8080``.
        user: Who logs in.
        password: The password.
        modern: Whether it is Airflow 3.
        check: Called between two looks at a state; raises when there is no sense in waiting on.
    """

    def __init__(
        self,
        *,
        address: str,
        user: str,
        password: str,
        modern: bool,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._user = user
        self._password = password
        self._modern = modern
        self._check = check
        prefix = "/api/v2" if modern else "/api/v1"
        # No proxy that the environment names: the server is on this machine.
        self._http = httpx.Client(base_url=address + prefix, timeout=60, trust_env=False)
        self._address = address

    def close(self) -> None:
        self._http.close()

    def call(self, method: str, path: str, **options: Any) -> Any:
        """One request; returns the JSON document.

        Raises:
            AirflowError: The answer is an error.
        """
        if "authorization" not in self._http.headers:
            self._log_in()
        answer = self._http.request(method, path, **options)
        if answer.status_code == httpx.codes.UNAUTHORIZED and self._modern:
            self._log_in()
            answer = self._http.request(method, path, **options)
        if answer.is_error:
            raise AirflowError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json()

    def _log_in(self) -> None:
        if not self._modern:
            request = next(
                httpx.BasicAuth(self._user, self._password).auth_flow(httpx.Request("GET", "http://x"))
            )
            self._http.headers["authorization"] = request.headers["authorization"]
            return
        credentials = {"username": self._user, "password": self._password}
        answer = self._http.post(f"{self._address}/auth/token", json=credentials)
        if answer.is_error:
            raise AirflowError(f"log in as {self._user}: {answer.status_code} {answer.text}")
        self._http.headers["authorization"] = f"Bearer {answer.json()['access_token']}"

    def health(self) -> Mapping[str, str | None]:
        """``healthy`` or not, by component; empty while nothing answers."""
        try:
            answer = self._http.get("/monitor/health" if self._modern else "/health")
        except httpx.TransportError:
            return {}
        if answer.is_error:
            return {}
        return {name: part.get("status") for name, part in answer.json().items() if isinstance(part, dict)}

    def dag_ids(self) -> set[str]:
        return {dag["dag_id"] for dag in self._pages("/dags", "dags")}

    def import_errors(self) -> dict[str, str]:
        """The traceback of each DAG file that does not load, by file name."""
        return {
            error["filename"]: error["stack_trace"] for error in self._pages("/importErrors", "import_errors")
        }

    def unpause(self, dag_id: str) -> None:
        """Let the scheduler run the DAG."""
        self.call("PATCH", f"/dags/{dag_id}", json={"is_paused": False})

    def trigger(self, dag_id: str, **conf: Any) -> str:
        """Start a DAG run with ``conf`` as its params and return its id."""
        body: dict[str, Any] = {"conf": conf}
        if self._modern:
            body["logical_date"] = None
        return str(self.call("POST", f"/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])

    def run_ids(self, dag_id: str) -> list[str]:
        """The DAG's runs."""
        return [run["dag_run_id"] for run in self._pages(f"/dags/{dag_id}/dagRuns", "dag_runs")]

    def runs(self, dag_id: str) -> list[DagRun]:
        """The DAG's runs that have a data interval, ordered by it."""
        found = [
            DagRun(
                run_id=item["dag_run_id"],
                kind=item["run_type"],
                state=item["state"],
                start=datetime.fromisoformat(item["data_interval_start"]),
                end=datetime.fromisoformat(item["data_interval_end"]),
            )
            for item in self._pages(f"/dags/{dag_id}/dagRuns", "dag_runs")
            if item["data_interval_start"]
        ]
        return sorted(found, key=lambda run: run.start)

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def clear(self, dag_id: str, run_id: str) -> None:
        """Clear the whole DAG run, so that all of it runs again."""
        body = {"dry_run": False, "only_failed": False} if self._modern else {"dry_run": False}
        self.call("POST", f"/dags/{dag_id}/dagRuns/{run_id}/clear", json=body)

    def set_state(self, dag_id: str, run_id: str, task_id: str, map_index: int, state: str) -> None:
        """Mark a mapped task, as ``failed`` for example."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/{map_index}"
        body: dict[str, Any] = {"new_state": state}
        if not self._modern:
            body["dry_run"] = False
        self.call("PATCH", path, json=body)

    def clear_tasks(self, dag_id: str, run_id: str, tasks: Sequence[tuple[str, int]]) -> None:
        """Clear single tasks, mapped ones by their map index; on Airflow 3 only."""
        body = {
            "dry_run": False,
            "only_failed": False,
            "dag_run_id": run_id,
            "task_ids": [[task, index] if index >= 0 else task for task, index in tasks],
        }
        self.call("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)

    def tasks(self, dag_id: str, run_id: str) -> list[TaskInstance]:
        """The DAG run's tasks, ordered by name and map index."""
        found = [
            TaskInstance(
                task_id=item["task_id"],
                map_index=item["map_index"],
                state=item["state"],
                try_number=item["try_number"],
                label=item.get("rendered_map_index"),
            )
            for item in self._pages(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", "task_instances")
        ]
        return sorted(found, key=lambda task: (task.task_id, task.map_index))

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """What a task pushed, as JSON has it.

        Raises:
            AirflowError: It pushed nothing under the key.
        """
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.call("GET", path, params={"stringify": False})["value"]

    def links(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> dict[str, str | None]:
        """The addresses behind the buttons that a task's operator adds to its page, by name."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/links"
        answer = self.call("GET", path, params={"map_index": map_index})
        found: dict[str, str | None] = answer["extra_links"] if self._modern else answer
        return found

    def wait(
        self,
        dag_id: str,
        run_id: str,
        *,
        timeout: float,
        progress: Callable[[list[TaskInstance]], None] | None = None,
    ) -> str:
        """Wait for the end of a DAG run and return its state.

        Args:
            dag_id: The DAG.
            run_id: The DAG run.
            timeout: Seconds.
            progress: Told of the tasks about once a second, and at the end.

        Raises:
            AirflowError: It did not end in time, or Airflow itself has gone.
        """
        deadline = time.monotonic() + timeout
        while True:
            state = self.run_state(dag_id, run_id)
            if progress is not None:
                progress(self.tasks(dag_id, run_id))
            if state in FINAL:
                return state
            if time.monotonic() > deadline:
                tasks = "\n".join(map(str, self.tasks(dag_id, run_id)))
                raise AirflowError(f"{dag_id} {run_id} is {state} after {timeout:g} seconds:\n{tasks}")
            self._check()
            time.sleep(1)

    def _pages(self, path: str, key: str) -> Iterator[dict[str, Any]]:
        offset = 0
        while True:
            page = self.call("GET", path, params={"limit": _PAGE, "offset": offset})
            yield from page[key]
            offset += _PAGE
            if offset >= page["total_entries"]:
                return

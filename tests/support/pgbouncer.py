"""A throw-away pgbouncer in front of a throw-away Postgres, in transaction mode and otherwise as it comes.

``pgbouncer`` is taken from the PATH; where it is not there, Debian's package is unpacked beside the Python
environment, which needs no rights but those to ask the package mirror.
"""

from __future__ import annotations

import atexit
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.postgres import Postgres, fresh_database, server_account, temporary_directory
from tests.support.processes import die_with_parent, free_port

#: What the package needs beside itself, by the name of the library; the first package that there is serves.
_LIBRARIES = {
    "libcares.so.2": ("libc-ares2",),
    "libevent-2.1.so.7": ("libevent-2.1-7t64", "libevent-2.1-7"),
}
_SETTINGS = {
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "auth_type": "scram-sha-256",
    "pool_mode": "transaction",
}
_SECONDS = 120


class PgBouncerUnavailableError(RuntimeError):
    """There is no pgbouncer here, and none can be had."""


class PgBouncerError(RuntimeError):
    """pgbouncer did not start; the text ends with its own log."""


class PgBouncer:
    """One pgbouncer of its own on 127.0.0.1, gone when it is stopped or its owner dies.

    As root, where pgbouncer refuses to run, its account is ``nobody``.

    Args:
        server: The running server that it passes connections on to.
        settings: Lines of ``[pgbouncer]`` to add or to replace, as strings; default what it needs to run.

    Attributes:
        port: The TCP port; 0 before the start.

    Raises:
        PgBouncerUnavailableError: The program is not installed and cannot be fetched.
        PgBouncerError: It does not start.
    """

    def __init__(self, server: Postgres, *, settings: Mapping[str, str] | None = None) -> None:
        self.port = 0
        self._server = server
        self._settings = {**_SETTINGS, **(settings or {})}
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PgBouncer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return (self._home / "log").read_text(errors="replace") if self._home else ""

    def url(self, url: str) -> str:
        """The URI of a database of the server, by way of this pooler."""
        return url.replace(f"@127.0.0.1:{self._server.port}/", f"@127.0.0.1:{self.port}/")

    def start(self) -> None:
        account = server_account()
        program = _program()
        self._home = Path(tempfile.mkdtemp(prefix="pgbouncer-", dir=temporary_directory(account)))
        atexit.register(self.stop)
        # The environment may lie below a directory that the account may not enter.
        shutil.copytree(program.parent, self._home / "program", symlinks=False)
        self.port = free_port()
        (self._home / "users").write_text(f'"{self._server.user}" "{self._server.password}"\n')
        settings = {**self._settings, "listen_port": self.port, "auth_file": self._home / "users"}
        lines = [
            "[databases]",
            f"* = host=127.0.0.1 port={self._server.port}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        (self._home / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        identity: dict[str, Any] = {"cwd": "/", "env": _environment(self._home / "program")}
        if account is not None:
            for path in (self._home, *self._home.rglob("*")):
                os.chown(path, account.pw_uid, account.pw_gid)
            identity |= {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        with (self._home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(self._home / "program" / program.name), str(self._home / "pgbouncer.ini")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(signal.SIGTERM),
                start_new_session=True,
                **identity,
            )
        if not self._answers():
            log_text = self.log[-4_000:]
            self.stop()
            raise PgBouncerError(f"pgbouncer did not start:\n{log_text}")

    def stop(self) -> None:
        """Stop it and delete everything it wrote."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        self._process = None
        atexit.unregister(self.stop)
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
        self._home, self.port = None, 0

    def _answers(self) -> bool:
        import psycopg2

        deadline = time.monotonic() + 30
        assert self._process is not None
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg2.connect(self.url(self._server.url()), connect_timeout=5).close()
            except psycopg2.OperationalError:
                time.sleep(0.05)
            else:
                return True
        return False


@contextmanager
def pooled_database(server: Postgres, bouncer: PgBouncer) -> Iterator[tuple[str, str]]:
    """The URIs of an empty database: by way of the pooler, and past it."""
    with fresh_database(server) as url:
        yield bouncer.url(url), url


def _program() -> Path:
    """The path of ``pgbouncer``, with the libraries it needs in its directory if it was fetched."""
    installed = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if installed:
        return _alone(Path(installed))
    kept = Path(sys.prefix) / "share" / f"pgbouncer-{platform.machine()}"
    if not (kept / "pgbouncer").exists():
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise PgBouncerUnavailableError("pgbouncer is not installed, and apt is not there to fetch it")
        _fetch(kept)
    return kept / "pgbouncer"


def _alone(program: Path) -> Path:
    """A directory with nothing but the program, as `start` copies one."""
    directory = Path(tempfile.mkdtemp(prefix="pgbouncer-installed-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(shutil.copy(program, directory))


def _environment(libraries: Path) -> dict[str, str]:
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "LD_LIBRARY_PATH": str(libraries)}


def _fetch(kept: Path) -> None:
    """Put Debian's program and the libraries that are missing into ``kept``, all or nothing."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pgbouncer-", dir=kept.parent) as name:
        work = Path(name)
        _unpack(work, ("pgbouncer",))
        made = work / "made"
        made.mkdir()
        program = Path(shutil.copy(work / "root" / "usr" / "sbin" / "pgbouncer", made))
        for library in _missing(program):
            _unpack(work, _LIBRARIES.get(library, ()))
            [found] = (path for path in (work / "root").rglob(library) if path.exists())
            shutil.copy(found, made)
        done = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, env=_environment(made)
        )
        if done.returncode != 0:
            raise PgBouncerUnavailableError(f"Debian's pgbouncer does not run here: {done.stderr.strip()}")
        try:
            made.rename(kept)
        except OSError:
            # Another process was quicker.
            if not (kept / "pgbouncer").exists():
                raise


def _missing(program: Path) -> list[str]:
    """The libraries that the program wants and this machine has not."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    return re.findall(r"(\S+) => not found", done.stdout)


def _unpack(work: Path, packages: tuple[str, ...]) -> None:
    """Download the first of the packages that the mirror has, and unpack it."""
    trouble = "no package is known to have it"
    for package in packages:
        for refresh in (False, True):
            # The list of packages may be empty or old; only root may renew it.
            if refresh and (os.geteuid() != 0 or _apt(work, "update").returncode != 0):
                break
            done = _apt(work, "download", package)
            if done.returncode == 0:
                for archive in work.glob("*.deb"):
                    subprocess.run(["dpkg-deb", "-x", archive, work / "root"], check=True)
                    archive.unlink()
                return
            trouble = " ".join(done.stderr.split())
    raise PgBouncerUnavailableError(f"pgbouncer is not installed and cannot be fetched: {trouble}")


def _apt(work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", *arguments]
    return subprocess.run(command, cwd=work, capture_output=True, text=True, check=False, timeout=_SECONDS)

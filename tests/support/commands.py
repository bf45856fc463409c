"""The command, in a process of its own or in this one, and a source that breaks when it is told to."""

from __future__ import annotations

import logging
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from airflow_provider_backfill.cli import main
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.records import ChunkRow

REPOSITORY = Path(__file__).parents[2]
SOURCE = "sources.web_events:page_views"
WINDOW = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-06T00:00:00Z", "--chunk", "1d")
BACKFILL_ID = "d7a7c6e21e0d8ecb"
THIRD_RUN_ID = "559264ef1526bd83"
SECONDS = 120.0

#: Files in the working directory tell it what to do in the chunk of 3 January.
WEB_EVENTS = """
import time
from datetime import UTC, datetime
from pathlib import Path

import dlt


@dlt.resource
def page_views(at=dlt.sources.incremental("at", initial_value=datetime(2020, 1, 1, tzinfo=UTC))):
    if at.start_value == datetime(2026, 1, 3, tzinfo=UTC):
        if Path("broken").exists():
            raise RuntimeError("the source broke")
        while Path("stuck").exists():
            Path("reached").touch()
            time.sleep(0.02)
    for day in range(1, 7):
        yield {"id": day, "at": datetime(2026, 1, day, 12, tzinfo=UTC), "order": day * 10}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command that has ended said."""

    code: int
    out: list[str]
    err: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A directory with the source in it, and a database to load into.

    Args:
        home: The working directory of commands; attempts extract to ``work`` in it.
        target: Where they load to.
        environment: Variables on top of this process's.
    """

    home: Path
    target: Target
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        source = self.home / "sources" / "web_events.py"
        source.parent.mkdir(parents=True)
        source.write_text(WEB_EVENTS)

    @property
    def url(self) -> str:
        if self.target.dialect.name == "duckdb":
            return f"duckdb:///{self.target.credentials}"
        return self.target.credentials

    @property
    def place(self) -> tuple[str, ...]:
        return ("--destination", self.url, "--dataset", self.target.dataset_name)

    @property
    def variables(self) -> dict[str, str]:
        return {
            "PYTHONPATH": str(REPOSITORY),
            "AIRFLOW__CHUNKED_BACKFILL__WORK_DIR": str(self.work),
            **self.environment,
        }

    @property
    def work(self) -> Path:
        return self.home / "work"

    def tell(self, word: str) -> None:
        """``broken`` or ``stuck``, until `untell`."""
        (self.home / word).touch()

    def untell(self, word: str) -> None:
        (self.home / word).unlink()

    def backfill(self, command: str, *more: str, code: int = 0) -> Done:
        """``run`` or ``plan`` of the standard window; fails the test on another exit code."""
        return self.call(command, SOURCE, *WINDOW, *self.place, *more, code=code)

    def call(self, *arguments: str, code: int = 0) -> Done:
        with self.started(*arguments) as process:
            return process.ends(code)

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Running]:
        """The command in a process group of its own; what is left of it is killed at the end."""
        process = Running(self, arguments)
        try:
            yield process
        finally:
            process.kill()

    @contextmanager
    def running(self, *more: str) -> Iterator[Running]:
        """``run`` of the standard window, going on."""
        with self.started("run", SOURCE, *WINDOW, *self.place, *more) as process:
            yield process

    def quickly(self, command: str, *more: str, code: int = 0) -> Done:
        """As `backfill`, in this process."""
        return self.invoke(command, SOURCE, *WINDOW, *self.place, *more, code=code)

    def invoke(self, *arguments: str, code: int = 0) -> Done:
        """As `call`, in this process, which keeps none of its traces."""
        with chdir(self.home), untouched():
            result = CliRunner().invoke(main, arguments, env=self.variables)
        assert result.exit_code == code, result.output
        return Done(code=code, out=result.stdout.splitlines(), err=result.stderr.splitlines())

    def rows(self) -> list[ChunkRow]:
        """The ledger; empty when there is none."""
        if not self.target.exists():
            return []
        with self.target.connect(SECONDS) as session:
            ledger = Ledger(session, self.target)
            return ledger.dataset_chunks() if ledger.exists() else []

    def statuses(self) -> list[str]:
        return [str(row.status) for row in self.rows()]

    def loaded(self) -> list[tuple[int, int]]:
        """``id`` and ``order`` of every row that a consumer sees, in order."""
        quoted = self.target.dialect.quote(self.target.dataset_name)
        with self.target.connect(SECONDS) as session:
            rows = session.execute(f'SELECT id, "order" FROM {quoted}.page_views ORDER BY id')
            return [(int(number), int(order)) for number, order in rows]

    def stages(self) -> list[str]:
        if not self.target.exists():
            return []
        with self.target.connect(SECONDS) as session:
            return self.target.dialect.schemas(session, "backfill_stage_")

    def attempts(self) -> list[str]:
        """Working directories of attempts."""
        return sorted(os.listdir(self.work)) if self.work.exists() else []


@contextmanager
def untouched() -> Iterator[None]:
    """What the command changes in its process is as before when the block ends."""
    logger = logging.getLogger("airflow_provider_backfill")
    before = (logger.level, list(logger.handlers), logger.propagate)
    modules, path = set(sys.modules), list(sys.path)
    with mock.patch.dict(os.environ):
        try:
            yield
        finally:
            logger.level, logger.handlers, logger.propagate = before
            sys.path[:] = path
            for name in set(sys.modules) - modules:
                if name.partition(".")[0] in {"sources", "refusals", "web"}:
                    del sys.modules[name]


class Running:
    """A command that runs; its output is read as it comes."""

    def __init__(self, site: Site, arguments: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "airflow_provider_backfill.cli", *arguments],
            cwd=site.home,
            env={
                **os.environ,
                **site.variables,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell without job control starts its background jobs deaf to Ctrl-C, and that is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )
        self._out: list[str] = []
        self._err: list[str] = []
        self._news = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self._process.stdout, self._out), (self._process.stderr, self._err))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self, stream: object, lines: list[str]) -> None:
        for line in stream:  # type: ignore[attr-defined]
            with self._news:
                lines.append(line.rstrip("\n"))
                self._news.notify_all()

    def says(self, pattern: str) -> str:
        """Wait for a line of stdout that matches."""

        def found() -> str | None:
            return next((line for line in self._out if re.search(pattern, line)), None)

        with self._news:
            assert self._news.wait_for(found, SECONDS), (pattern, self._out, self._err)
        return str(found())

    def signal(self, number: int) -> None:
        """To the process alone, as ``kill`` and supervisors do."""
        self._process.send_signal(number)

    def signal_all(self, number: int) -> None:
        """To the process and its workers, as a terminal does."""
        os.killpg(self._process.pid, number)

    def ends(self, code: int) -> Done:
        """Wait for the end and check the exit code."""
        actual = self._process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)
        assert actual == code, (actual, self._out, self._err)
        return Done(code=actual, out=self._out, err=self._err)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(SECONDS)
        for reader in self._readers:
            reader.join(SECONDS)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def answered(site: Site, keys: bytes, *arguments: str) -> tuple[int, str]:
    """The command on a terminal, where somebody presses ``keys``; its exit code and what is on the screen."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "airflow_provider_backfill.cli", *arguments],
        cwd=site.home,
        env={**os.environ, **site.variables, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        # A terminal of its own, so that Ctrl-C on it reaches the command.
        start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),
    )
    os.close(theirs)
    shown = b""
    while b"[y/N]: " not in shown:
        shown += os.read(ours, 65_536)
    os.write(ours, keys)
    try:
        while True:
            if select.select([ours], [], [], 1.0)[0]:
                shown += os.read(ours, 65_536)
            elif keys == b"\x03":
                # Python may wait for a key without having looked for a signal that came just before it did.
                os.write(ours, keys)
    except OSError:
        # Linux's way to say that the other side has closed.
        pass
    os.close(ours)
    return process.wait(60), shown.decode()

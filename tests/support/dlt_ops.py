"""A project of dlt-ops 0.1.0, with both its command and ours at hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_provider_backfill.engine.destinations import Target
from tests.support.commands import SECONDS, Done, Site
from tests.support.ledgers import wait_until

SOURCE = "web.source.web_events:web_events_source"
WINDOW = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-04T00:00:00Z", "--chunk", "1d")

_CONFIG = """
[dlt_ops]
default_destination = "{destination}"

[sources.web_events.dlt_ops]
schedule = "@manual"
dataset = "{dataset}"
"""

#: Files in the working directory tell it what to do in the chunk of 2 January.
_SOURCE = """
import time
from datetime import UTC, datetime
from pathlib import Path

import dlt
import pydantic


class PageView(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    id: int
    at: datetime
    order: int


@dlt.resource(columns=PageView)
def page_views(at=dlt.sources.incremental("at", initial_value=datetime(2020, 1, 1, tzinfo=UTC))):
    if at.start_value == datetime(2026, 1, 2, tzinfo=UTC):
        if Path("broken").exists():
            raise RuntimeError("the source broke")
        while Path("stuck").exists():
            Path("reached").touch()
            time.sleep(0.02)
    for day in range(1, 7):
        yield {"id": day, "at": datetime(2026, 1, day, 12, tzinfo=UTC), "order": day * 10}


@dlt.source(name="web_events")
def web_events_source():
    return page_views
"""


class Project:
    """A directory laid out as dlt-ops wants it.

    Args:
        home: The directory, which is made.
        target: Where its one source is loaded to.
        program: The command ``dlt-ops``.
    """

    def __init__(self, home: Path, target: Target, program: Path) -> None:
        self.site = Site(home=home, target=target)
        self.home = home
        self.target = target
        self._program = program
        destination = target.dialect.name
        config = _CONFIG.format(destination=destination, dataset=target.dataset_name)
        (home / ".dlt").mkdir()
        (home / ".dlt" / "config.toml").write_text(config)
        (home / "web" / "source").mkdir(parents=True)
        (home / "web" / "source" / "web_events.py").write_text(_SOURCE)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "DLT_DATA_DIR": str(home / ".dlt_data"),
            "RUNTIME__DLTHUB_TELEMETRY": "false",
            "NO_COLOR": "1",
            f"DESTINATION__{destination.upper()}__CREDENTIALS": self.site.url,
        }

    # Its command

    @contextmanager
    def started(self, *window: str) -> Iterator[subprocess.Popen[str]]:
        """``pipeline backfill`` going on; killed at the end of the block if it is not over."""
        process = subprocess.Popen(
            [str(self._program), "pipeline", "backfill", "web_events", *(window or WINDOW)],
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def theirs(self, *window: str, code: int = 0) -> list[str]:
        """``pipeline backfill``; what it says."""
        with self.started(*window) as process:
            said, _ = process.communicate(timeout=SECONDS)
            assert process.returncode == code, said
            return said.splitlines()

    def lose(self, *window: str) -> None:
        """``pipeline backfill``, killed while it reads the chunk of 2 January."""
        self.site.tell("stuck")
        with self.started(*window) as process:
            wait_until(lambda: (self.home / "reached").exists() or process.poll() is not None, SECONDS)
            assert process.poll() is None, process.communicate()
            process.send_signal(signal.SIGKILL)
            process.wait(SECONDS)
        self.site.untell("stuck")

    def their_status(self) -> list[dict[str, Any]]:
        """The runs that ``pipeline status`` lists, the newest first."""
        done = subprocess.run(
            [str(self._program), "pipeline", "status", "--limit", "50", "--json"],
            cwd=self.home,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=SECONDS,
        )
        [source] = json.loads(done.stdout)
        assert (source["source"], source["ledger"], source["error"]) == ("web_events", "ok", None)
        runs: list[dict[str, Any]] = source["runs"]
        return runs

    # Ours

    def ours(self, command: str, *more: str, window: tuple[str, ...] = WINDOW, code: int = 0) -> Done:
        """One of our commands that takes a window."""
        return self.site.invoke(command, SOURCE, *window, *self.site.place, *more, code=code)

    def at_dataset(self, command: str, *more: str, code: int = 0) -> Done:
        """One of our commands that takes a dataset alone."""
        return self.site.invoke(command, *self.site.place, *more, code=code)

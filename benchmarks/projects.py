"""A directory with two sources, laid out as dlt-ops wants it; our command reads the same files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DLT_OPS = ROOT / ".venv-dlt-ops" / "bin" / "dlt-ops"
DATASET = "raw"

_CONFIG = """
[dlt_ops]
default_destination = "{database}"
"""
_SECTION = """
[sources.{name}.dlt_ops]
schedule = "@manual"
dataset = "{dataset}"
"""

#: One row an hour.
_HOURS = """
from datetime import UTC, datetime, timedelta

import dlt
import pydantic


class Reading(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    id: int
    at: datetime
    value: float


@dlt.resource(columns=Reading)
def readings(at=dlt.sources.incremental("at", initial_value=datetime(2020, 1, 1, tzinfo=UTC))):
    hour = at.start_value
    yield {"id": int(hour.timestamp()) // 3600, "at": hour, "value": 0.5}


@dlt.source(name="hours")
def hours_source():
    return readings
"""

#: The rows of each day are in a file of its own.
_FLIGHTS = """
import json
from datetime import UTC, datetime
from pathlib import Path

import dlt
import pydantic

DATA = Path({data!r})


class Flight(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    year: int
    month: int
    day: int
    dep_time: int | None
    sched_dep_time: int
    dep_delay: int | None
    arr_time: int | None
    sched_arr_time: int
    arr_delay: int | None
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    air_time: int | None
    distance: int
    hour: int
    minute: int
    time_hour: datetime


@dlt.resource(columns=Flight)
def departures(
    time_hour=dlt.sources.incremental("time_hour", initial_value=datetime(2013, 1, 1, tzinfo=UTC)),
):
    rows = []
    with open(DATA / f"{{time_hour.start_value:%Y-%m-%d}}.jsonl") as lines:
        for line in lines:
            row = json.loads(line)
            row["time_hour"] = datetime.fromisoformat(row["time_hour"])
            rows.append(row)
    yield rows


@dlt.source(name="flights")
def flights_source():
    return departures
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A window of one of the sources.

    Args:
        source: ``hours`` or ``flights``.
        start: Where it begins.
        chunks: How many there are.
        chunk: How long each is, as commands spell it.
        length: The same.
        rows: How many rows are in it.
    """

    source: str
    start: datetime
    chunks: int
    chunk: str
    length: timedelta
    rows: int

    @property
    def window(self) -> Sequence[str]:
        """The arguments that both commands have for it."""
        start, end = (f"{bound:%Y-%m-%dT%H:%M:%SZ}" for bound in (self.start, self.end))
        return ("--from", start, "--to", end, "--chunk", self.chunk)

    @property
    def end(self) -> datetime:
        return self.start + self.chunks * self.length


def hours(count: int) -> Job:
    return Job(
        source="hours",
        start=datetime(2026, 1, 1, tzinfo=UTC),
        chunks=count,
        chunk="1h",
        length=timedelta(hours=1),
        rows=count,
    )


class Project:
    """The directory.

    Args:
        home: Where it is made.
        database: ``duckdb`` or ``postgres``.
    """

    def __init__(self, home: Path, database: str) -> None:
        self.home = home
        self.database = database
        sources = home / "web" / "source"
        sources.mkdir(parents=True)
        (sources / "hours.py").write_text(_HOURS)
        (sources / "flights.py").write_text(_FLIGHTS.format(data=str(home / "data")))
        (home / ".dlt").mkdir()
        sections = [_SECTION.format(name=name, dataset=DATASET) for name in ("hours", "flights")]
        (home / ".dlt" / "config.toml").write_text("".join([_CONFIG.format(database=database), *sections]))

    def flights(self, days: int) -> Job:
        """January 2013 by days of UTC; their rows are written out first."""
        start = datetime(2013, 1, 1, tzinfo=UTC)
        by_day = flights_by_day(start, days)
        (self.home / "data").mkdir(exist_ok=True)
        for day, rows in by_day.items():
            (self.home / "data" / f"{day}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return Job(
            source="flights",
            start=start,
            chunks=days,
            chunk="1d",
            length=timedelta(days=1),
            rows=sum(map(len, by_day.values())),
        )

    def ours(self, job: Job, url: str, *more: str) -> None:
        """Run the window with ``chunked-backfill``."""
        source = f"web.source.{job.source}:{job.source}_source"
        place = ("--destination", url, "--dataset", DATASET, *more)
        command = [sys.executable, "-m", "airflow_provider_backfill.cli", "run", source, *job.window, *place]
        self._run(command, AIRFLOW__CHUNKED_BACKFILL__WORK_DIR=str(self.home / "work"))

    def theirs(self, job: Job, url: str) -> None:
        """Run the window with dlt-ops, which starts from an empty working directory."""
        place = {f"DESTINATION__{self.database.upper()}__CREDENTIALS": url}
        self._run([str(DLT_OPS), "pipeline", "backfill", job.source, *job.window], **place)

    def forget(self) -> None:
        """Remove what dlt keeps of a pipeline outside of the database."""
        shutil.rmtree(self.home / ".dlt_data", ignore_errors=True)

    def _run(self, command: Sequence[str], **variables: str) -> None:
        done = subprocess.run(
            command,
            cwd=self.home,
            env=environment(self.home, **variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command[:4]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def environment(home: Path, **variables: str) -> Mapping[str, str]:
    """What a program needs, and nothing that this process was told."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "AIRFLOW_HOME": str(home / "airflow"),
        "DLT_DATA_DIR": str(home / ".dlt_data"),
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "NO_COLOR": "1",
        **variables,
    }


def flights_by_day(start: datetime, days: int) -> Mapping[str, list[dict[str, Any]]]:
    """Departures from New York, by the day of UTC; all days are there."""
    if str(ROOT / "dags_examples") not in sys.path:
        sys.path.append(str(ROOT / "dags_examples"))
    from sources.nyc_flights import flight, read

    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in map(flight, read(start, start + timedelta(days=days))):
        found[f"{row['time_hour']:%Y-%m-%d}"].append({**row, "time_hour": row["time_hour"].isoformat()})
    return found

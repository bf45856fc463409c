"""One scenario from an empty database to the verdict."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from tests.chaos import checks, disk, faults, plugin, points, sabotage, source
from tests.chaos.actors import Actor, HarnessError, fork, in_child
from tests.chaos.checks import Sight
from tests.chaos.matrix import Scenario
from tests.chaos.proxy import Proxy
from tests.chaos.warehouses import Site, Warehouse

T = TypeVar("T")

LEASE = 2.0
#: How often the same command may be run again until the window is covered.
RERUNS = 4

SETTINGS = {
    "AIRFLOW__CHUNKED_BACKFILL__LEASE_SECONDS": str(LEASE),
    "AIRFLOW__CHUNKED_BACKFILL__HEARTBEAT_SECONDS": "0.3",
    "AIRFLOW__CHUNKED_BACKFILL__WAIT_TIMEOUT_SECONDS": "30",
    "AIRFLOW__CHUNKED_BACKFILL__FILE_LOCK_TIMEOUT_SECONDS": "30",
}
#: A run looks at held chunks each second; here that would be most of the time there is.
POLL_SECONDS = 0.1


@dataclass(slots=True, kw_only=True)
class Result:
    """What came of a scenario.

    Args:
        scenario: Which one.
        injected: The point was reached and the fault was let loose.
        outcome: What became of the attempt that was hit.
        reason: What the ledger said of it before the run was repeated.
        attempts: How often the chunk that was hit was claimed.
        reruns: How often the same command was run again.
        lost: Rows missing at the end.
        extra: Rows too many at the end.
        leftovers: Stages, directories, locks and sessions at the end.
        violations: Everything that is wrong, in words.
        seconds: How long it took.
        log: The end of what the processes said, where something is wrong.
    """

    scenario: Scenario
    injected: bool = False
    outcome: str = ""
    reason: str = ""
    attempts: int = 0
    reruns: int = 0
    lost: int = 0
    extra: int = 0
    leftovers: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    log: str = ""


class Stage:
    """The scenery of one scenario: a database, a disk, two FIFOs and the processes.

    Args:
        scenario: What to play.
        warehouse: Whose database it is.
        home: A directory of the scenario's own.
        mounting: Whether the disk may be a real one.
        broken: A key of `sabotage.SABOTAGES`, or nothing.
    """

    def __init__(
        self, scenario: Scenario, warehouse: Warehouse, home: Path, *, mounting: bool, broken: str = ""
    ) -> None:
        self.scenario = scenario
        self.warehouse = warehouse
        self.home = home
        self.disk: disk.Disk = disk.Mounted(home / "disk") if mounting else disk.Emulated(home / "disk")
        self.site: Site = warehouse.open(home.name, scenario.disposition, scenario.dataset)
        self.proxy: Proxy | None = None
        if scenario.fault == points.LOST_REPLY:
            self.proxy = Proxy(self.site.port, home / "proxy.log")
            self.site = self.site.through(self.proxy.port)
        self.order = plugin.Order(point=scenario.point, chunk_id=scenario.chunk_id, directory=str(home))
        self.actors: list[Actor] = []
        self._broken = broken
        self._fifos: dict[Path, int] = {}
        for path in (self.order.reached, self.order.go):
            os.mkfifo(path)
            # Both ends, so that neither side ever waits for the other to open.
            self._fifos[path] = os.open(path, os.O_RDWR)

    def close(self) -> None:
        for actor in self.actors:
            actor.kill()
        if self.proxy:
            self.proxy.close()
        for handle in self._fifos.values():
            os.close(handle)
        self.disk.remove()
        self.warehouse.drop(self.site)
        shutil.rmtree(self.home, ignore_errors=True)

    # Processes

    def start(self) -> list[Actor]:
        """Run the backfill the way the scenario has it."""
        if self.scenario.drivers == "workers":
            return [self._spawned("victim")]
        first = self.run("victim-1", hit=True)
        if self.scenario.drivers == "one":
            return [first]
        return [first, self.run("victim-2", hit=True, group=first.pid)]

    def run(self, name: str, *, hit: bool = False, group: int | None = None) -> Actor:
        """``chunked-backfill run`` in a process of its own.

        Args:
            name: What its log is called.
            hit: The fault may hit it.
            group: The process group it joins.
        """

        def work() -> int:
            os.environ |= self._environment
            if hit:
                plugin.install(self.order)
            if self._broken:
                sabotage.install(self._broken)
            self.disk.install()
            return _command(self._arguments)

        actor = fork(work, self.home / f"{name}.log", group)
        self.actors.append(actor)
        return actor

    def _spawned(self, name: str) -> Actor:
        variables = {plugin.ENVIRONMENT: self.order.dump(), sabotage.ENVIRONMENT: self._broken}
        command = [sys.executable, "-m", "tests.chaos.command", *self._arguments, "--concurrency", "2"]

        def work() -> int:
            os.execve(sys.executable, command, {**os.environ, **self._environment, **variables})

        actor = fork(work, self.home / f"{name}.log")
        self.actors.append(actor)
        return actor

    @property
    def _environment(self) -> dict[str, str]:
        return {**SETTINGS, "AIRFLOW__CHUNKED_BACKFILL__WORK_DIR": str(self.disk.work)}

    @property
    def _arguments(self) -> list[str]:
        return [
            "run",
            source.REFERENCE,
            *("--from", source.START.isoformat(), "--to", source.END.isoformat(), "--chunk", "1h"),
            *("--destination", self.site.url, "--dataset", source.DATASET),
            *("--set", f"disposition={self.scenario.disposition}", "--debug"),
        ]

    # Talking with the one that is hit

    def reached(self, drivers: list[Actor], seconds: float = 60.0) -> tuple[int, str] | None:
        """Wait until an attempt is at the point: its process and its chunk. None when all ended before."""
        handle = self._fifos[self.order.reached]
        ends = {os.pidfd_open(actor.pid): actor for actor in drivers}
        waiting = set(ends)
        deadline = time.monotonic() + seconds
        try:
            while True:
                ready, _, _ = select.select([handle, *waiting], [], [], max(0.0, deadline - time.monotonic()))
                if handle in ready:
                    pid, chunk_id = os.read(handle, 100).decode().split()
                    return int(pid), chunk_id
                waiting -= set(ready)
                if not waiting:
                    return None
                if not ready:
                    raise HarnessError(f"nobody came to {self.scenario.point}:\n{self.logs()}")
        finally:
            for end in ends:
                os.close(end)

    def go(self) -> None:
        """Let it go on."""
        os.write(self._fifos[self.order.go], b".")

    # Looking

    def look(self) -> Sight:
        return self.ask(lambda: checks.look(self.site, self.disk.work))

    def ask(self, work: Callable[[], T]) -> T:
        return in_child(work, self.home / "harness.log")

    def logs(self) -> str:
        parts = (
            f"--- {path.stem}\n{path.read_text(errors='replace')[-2_500:]}"
            for path in self.home.glob("*.log")
        )
        return "\n".join(sorted(parts))


def _command(arguments: list[str]) -> int:
    from airflow_provider_backfill.cli import main
    from airflow_provider_backfill.engine import drive

    setattr(drive, "POLL_SECONDS", POLL_SECONDS)  # noqa: B010
    try:
        main(arguments, prog_name="chunked-backfill")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


@contextlib.contextmanager
def _staged(stage: Stage) -> Iterator[Stage]:
    try:
        yield stage
    finally:
        stage.close()


def play(scenario: Scenario, warehouse: Warehouse, home: Path, *, mounting: bool, broken: str = "") -> Result:
    """Run one scenario; what is wrong is in the result, and what is wrong with the harness, too."""
    began = time.monotonic()
    result = Result(scenario=scenario)
    home.mkdir(parents=True)
    with _staged(Stage(scenario, warehouse, home, mounting=mounting, broken=broken)) as stage:
        try:
            _play(stage, result)
        except Exception as error:
            result.violations.append(f"{type(error).__name__}: {error}"[:3_000])
        if result.violations or not result.injected:
            result.log = stage.logs()
    result.seconds = time.monotonic() - began
    return result


def _play(stage: Stage, result: Result) -> None:
    drivers = stage.start()
    found = stage.reached(drivers)
    chunk_id = stage.scenario.chunk_id
    if found:
        pid, chunk_id = found
        victim = next((actor for actor in drivers if actor.pid == pid), None)
        result.injected = True
        hit = faults.Hit(stage=stage, drivers=drivers, pid=pid, victim=victim, chunk_id=chunk_id)
        faults.inject(hit)
        for driver in drivers:
            driver.wait()
        if stage.proxy:
            result.injected = stage.proxy.lost
        sight = stage.look()
        row = sight.chunk(chunk_id)
        result.outcome = _outcome(hit, row)
        result.reason = (row and row.error) or ""
        result.violations += hit.violations + _after(hit, sight)
    for driver in drivers:
        driver.wait()
    stage.disk.mend()
    _recover(stage, result)
    scenario = stage.scenario
    verdict = stage.ask(
        lambda: checks.judge(stage.site, stage.disk.work, scenario.disposition, scenario.dataset)
    )
    result.lost, result.extra, result.leftovers = verdict.lost, verdict.extra, verdict.leftovers
    result.violations += verdict.faults
    last = stage.look().chunk(chunk_id)
    result.attempts = (last and last.attempt) or 0


def _recover(stage: Stage, result: Result) -> None:
    """Run the same command again: that is all that a person has to do."""
    for number in range(1, RERUNS + 1):
        result.reruns = number
        code = stage.run(f"again-{number}").wait()
        if code == 0:
            return
    result.violations.append(f"the same command, run {RERUNS} times again, ended with {code}")


def _outcome(hit: faults.Hit, row: ChunkRow | None) -> str:
    """What became of the attempt that was hit, in two words."""
    killed = hit.victim.status is not None and hit.victim.status < 0 if hit.victim else hit.killed
    mine = bool(row and row.claimed_by and row.claimed_by.endswith(f":{hit.pid}"))
    completed = row is not None and row.status is ChunkStatus.COMPLETED
    if killed:
        return "killed" if not (completed and mine) else "killed, published"
    if completed and not mine:
        return "refused"
    if completed:
        return "published" if row and row.attempt == 1 else "retried"
    if row is not None and row.status is ChunkStatus.FAILED:
        return "gave back"
    return "cut off"


def _after(hit: faults.Hit, sight: Sight) -> list[str]:
    """What must hold as soon as every process of the first run has ended, before anybody runs it again."""
    scenario = hit.stage.scenario
    wrong = [f"a consumer sees half of {half}" for half in sight.halves]
    row = sight.chunk(hit.chunk_id)
    if scenario.fault == points.SIGTERM:
        if hit.victim is None or hit.victim.status != 1:
            wrong.append(f"SIGTERM ended the process with {hit.victim and hit.victim.status}, not with 1")
        published = scenario.point == points.AFTER_COMMIT
        gave_back = row is not None and row.error == "stopped by SIGTERM"
        taken = row is not None and (row.attempt or 0) > 1
        if not published and not gave_back and not taken:
            wrong.append(f"the chunk was not given back: {row}")
        if scenario.drivers == "one" and (sight.stages or sight.directories):
            wrong.append(f"SIGTERM left {sight.stages + sight.directories}")
    if scenario.point == points.AFTER_COMMIT and (row is None or row.status is not ChunkStatus.COMPLETED):
        wrong.append(f"a chunk that was published is not completed: {row}")
    return wrong

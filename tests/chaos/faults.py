"""What is done to the process that waits at its point, and when it may go on."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_backfill.engine.destinations.base import LEDGER_TABLE
from tests.chaos import points, source
from tests.chaos.actors import SECONDS, Actor, HarnessError
from tests.chaos.warehouses import PostgresWarehouse

if TYPE_CHECKING:
    from tests.chaos.scenario import Stage

#: Between two looks at a database that cannot be waited for otherwise, seconds.
_LOOK_SECONDS = 0.05


@dataclass(slots=True, kw_only=True)
class Hit:
    """The attempt that is hit.

    Args:
        stage: The scenery.
        drivers: The processes that were started.
        pid: The one at the point.
        victim: The same, if it was started here; None if a driver has started it.
        chunk_id: Its chunk.
        killed: The fault ends the process.
        violations: What went wrong meanwhile.
    """

    stage: Stage
    drivers: list[Actor]
    pid: int
    victim: Actor | None
    chunk_id: str
    killed: bool = False
    violations: list[str] = field(default_factory=list)


def inject(hit: Hit) -> None:
    """Let the scenario's fault loose on the process, which waits at its point."""
    if not _holds_file(hit):
        # Where the file is free, or a server answers: what a consumer sees at this very moment.
        hit.violations += [f"a consumer saw half of {half}" for half in hit.stage.look().halves]
    _FAULTS[hit.stage.scenario.fault](hit)


def _sigkill(hit: Hit) -> None:
    hit.killed = True
    os.kill(hit.pid, signal.SIGKILL)


def _sigkill_group(hit: Hit) -> None:
    hit.killed = True
    os.killpg(hit.drivers[0].pid, signal.SIGKILL)


def _sigterm(hit: Hit) -> None:
    os.kill(hit.pid, signal.SIGTERM)
    hit.stage.go()


def _sigstop(hit: Hit) -> None:
    """Stop it; a rival runs the same command; when that is over or can get no further, it wakes up."""
    os.kill(hit.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, hit.pid, os.WSTOPPED)
    rival = hit.stage.run("rival")
    others = [rival, *(actor for actor in hit.drivers if actor is not hit.victim)]
    try:
        if _holds_file(hit):
            _outlast_lease(hit)
        else:
            _until(lambda: rival.ended or _stuck(hit), "the rival neither ended nor waits for the sleeper")
        if all(actor.ended for actor in others):
            _check_taken(hit)
    finally:
        with suppress(ProcessLookupError):
            os.kill(hit.pid, signal.SIGCONT)
    hit.stage.go()
    if hit.victim:
        hit.victim.wait()
    rival.wait()


def _check_taken(hit: Hit) -> None:
    """The others are done: the chunk is nobody's any more, and if it is completed, not by the sleeper."""
    row = hit.stage.look().chunk(hit.chunk_id)
    if row is None or row.held or row.lapsed:
        hit.violations.append(f"the rival ended, and the sleeper still has the chunk: {row}")
    elif hit.stage.scenario.point != points.AFTER_COMMIT and (row.attempt or 0) < 2:
        hit.violations.append(f"the chunk of a sleeper was completed in its first attempt: {row}")


def _outlast_lease(hit: Hit) -> None:
    """Nobody can look into the file, or be told of its clock: wait for longer than the lease lasts."""
    from tests.chaos.scenario import LEASE

    select.select([], [], [], LEASE * 1.5)


def _stuck(hit: Hit) -> bool:
    """The lease has run out, and the others wait for a lock that the sleeper has."""
    warehouse = hit.stage.warehouse
    if not isinstance(warehouse, PostgresWarehouse):
        return False
    database = hit.stage.site.url.rpartition("/")[2]
    [(waiting,)] = warehouse.query(
        hit.stage.site,
        "SELECT count(*) FROM pg_stat_activity a WHERE a.datname = %s AND EXISTS ("
        " SELECT 1 FROM unnest(pg_blocking_pids(a.pid)) AS b(pid) JOIN pg_stat_activity s ON s.pid = b.pid"
        " WHERE s.state LIKE 'idle in transaction%%')",
        [database],
    )
    return bool(waiting) and bool(hit.stage.ask(lambda: _lapsed(hit)))


def _lapsed(hit: Hit) -> bool:
    with hit.stage.site.target.connect(10) as session:
        rows = session.execute(
            f"SELECT lease_expires_at <= clock_timestamp() FROM {source.DATASET}.{LEDGER_TABLE}"
            " WHERE chunk_id = :chunk_id",
            {"chunk_id": hit.chunk_id},
        )
    return any(lapsed for (lapsed,) in rows)


def _connection_loss(hit: Hit) -> None:
    warehouse = hit.stage.warehouse
    assert isinstance(warehouse, PostgresWarehouse)
    database = hit.stage.site.url.rpartition("/")[2]
    # With a timeout, it returns once the session is gone.
    warehouse.query(
        hit.stage.site,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = %s AND backend_type = 'client backend'",
        [database],
    )
    hit.stage.go()


def _lost_reply(hit: Hit) -> None:
    assert hit.stage.proxy is not None
    hit.stage.proxy.arm()
    hit.stage.go()


def _postgres_restart(hit: Hit) -> None:
    warehouse = hit.stage.warehouse
    assert isinstance(warehouse, PostgresWarehouse)
    warehouse.server.restart_immediate()
    hit.stage.go()


def _disk(hit: Hit) -> None:
    hit.stage.disk.strike(hit.stage.scenario.fault)
    hit.stage.go()


_FAULTS: dict[str, Callable[[Hit], None]] = {
    points.SIGKILL: _sigkill,
    points.SIGKILL_GROUP: _sigkill_group,
    points.SIGTERM: _sigterm,
    points.SIGSTOP: _sigstop,
    points.CONNECTION_LOSS: _connection_loss,
    points.LOST_REPLY: _lost_reply,
    points.POSTGRES_RESTART: _postgres_restart,
    points.FULL_DISK: _disk,
    points.READ_ONLY: _disk,
}


def _holds_file(hit: Hit) -> bool:
    """Whether the process, or one beside it, has the DuckDB file open, so that nobody else gets in."""
    if hit.stage.warehouse.name != "duckdb":
        return False
    file = hit.stage.site.target.credentials
    try:
        return any(os.path.realpath(entry) == file for entry in Path(f"/proc/{hit.pid}/fd").iterdir())
    except FileNotFoundError:
        return False


def _until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise HarnessError(otherwise)
        select.select([], [], [], _LOOK_SECONDS)

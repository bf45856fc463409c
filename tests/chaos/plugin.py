"""The plug-in that stops an attempt at a named point, tells the orchestrator, and waits for its word.

The product has no switch for this: what is wrapped here is wrapped from outside, in processes that the
harness has started. The point trips once a scenario, whichever process comes by first.
"""

from __future__ import annotations

import functools
import json
import os
import re
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.chaos import points

ENVIRONMENT = "CHAOS_ORDER"
#: Longer than any wait for another process.
PATIENCE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Where to stop.

    Args:
        point: One of `points.POINTS`.
        chunk_id: In the attempt at this chunk; `points.IN_MIGRATION` trips in whichever migrates.
        directory: Where the marker and the two FIFOs stand, by which both sides talk.
    """

    point: str
    chunk_id: str
    directory: str

    @property
    def marker(self) -> Path:
        return Path(self.directory) / "tripped"

    @property
    def reached(self) -> Path:
        """The FIFO that a process says ``<pid> <chunk>`` into."""
        return Path(self.directory) / "reached"

    @property
    def go(self) -> Path:
        """The FIFO that a byte from lets the process go on."""
        return Path(self.directory) / "go"

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Order:
        return cls(**json.loads(text))


class Plugin:
    """One process's side of an order."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._chunk: str | None = None
        self._beaten = threading.Event()

    def _due(self, point: str) -> bool:
        order = self._order
        here = point == points.IN_MIGRATION or self._chunk == order.chunk_id
        return here and point == order.point and not order.marker.exists()

    def trip(self, point: str) -> bool:
        """Report and wait, if this is the point of the order; whether it was."""
        if not self._due(point):
            return False
        try:
            os.close(os.open(self._order.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        go = os.open(self._order.go, os.O_RDONLY)
        try:
            reached = os.open(self._order.reached, os.O_WRONLY)
            os.write(reached, f"{os.getpid()} {self._chunk}\n".encode())
            os.close(reached)
            os.read(go, 1)
        finally:
            os.close(go)
        return True

    def midway(self) -> None:
        """Called by the source between two pages."""
        self.trip(points.MID_EXTRACT)
        if self._due(points.IN_HEARTBEAT):
            # The attempt would be over before its first renewal.
            self._beaten.wait(PATIENCE)

    def install(self) -> None:
        from dlt.destinations.job_client_impl import SqlJobClientBase

        from airflow_provider_backfill.engine import attempt
        from airflow_provider_backfill.engine.ledger import Ledger

        _wrap(Ledger, "claim_next", self._claim_next)
        _wrap(Ledger, "renew", self._renew)
        _wrap(attempt, "extract", self._extract)
        _wrap(attempt, "load_stage", self._load_stage)
        _wrap(attempt, "publish", self._publish)
        _wrap(SqlJobClientBase, "_update_schema_in_storage", self._store_schema)

    def _claim_next(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        claim = original(*args, **kwargs)
        self._chunk = claim.chunk_id if claim else None
        self.trip(points.AFTER_CLAIM)
        return claim

    def _renew(self, original: Callable[..., Any], *args: Any) -> Any:
        tripped = self.trip(points.IN_HEARTBEAT)
        try:
            return original(*args)
        finally:
            if tripped:
                self._beaten.set()

    def _extract(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        package = original(*args, **kwargs)
        self.trip(points.AFTER_NORMALISE)
        return package

    def _load_stage(self, original: Callable[..., Any], client: Any, *args: Any) -> Any:
        create, files = client.create_load_job, 0

        def create_load_job(*job: Any) -> Any:
            nonlocal files
            files += 1
            if files == 2:
                self.trip(points.MID_LOAD)
            return create(*job)

        client.create_load_job = create_load_job
        try:
            return original(client, *args)
        finally:
            del client.create_load_job

    def _store_schema(self, original: Callable[..., Any], *args: Any) -> Any:
        self.trip(points.IN_MIGRATION)
        return original(*args)

    def _publish(self, original: Callable[..., Any], client: Any, *args: Any, **kwargs: Any) -> Any:
        sql_client = client.sql_client
        execute = sql_client.execute_sql
        into = re.compile(
            rf'\b(INSERT|MERGE)\s+INTO\s+("\w+"\.)?"{sql_client.dataset_name}"\.', re.IGNORECASE
        )

        def execute_sql(statement: Any, *parameters: Any, **more: Any) -> Any:
            result = execute(statement, *parameters, **more)
            if into.search(str(statement)):
                self.trip(points.INSIDE_PUBLISH)
            return result

        self.trip(points.BEFORE_PUBLISH)
        sql_client.execute_sql = execute_sql
        try:
            result = original(client, *args, **kwargs)
        finally:
            del sql_client.execute_sql
        self.trip(points.AFTER_COMMIT)
        return result


def _wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    setattr(owner, name, wrapped)


_installed: list[Plugin] = []


def install(order: Order) -> None:
    """Follow the order in this process from now on."""
    plugin = Plugin(order)
    plugin.install()
    _installed[:] = [plugin]


def midway() -> None:
    """The source is between two pages; nothing without a plug-in."""
    for plugin in _installed:
        plugin.midway()

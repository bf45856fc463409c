"""Waiting for a chunk that somebody else holds, without a worker."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

# The name stands here on both lines. Elsewhere it would cost the parsing of DAGs, which needs no trigger.
from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.destinations.base import Target

#: How often the ledger is looked at while a lease has longer to live, seconds.
POLL_SECONDS = 10.0
#: How long one look may take, seconds; then it counts as failed.
LOOK_SECONDS = 20.0
#: By how much a wait may differ at random, so that the chunks that one holder blocks do not keep step.
_SPREAD = 0.25


class ChunkTrigger(BaseTrigger):
    """Fires once, when it is worth while to ask for the chunk again, or when the ``deadline`` has passed.

    With ``conn_id`` it looks at the ledger every ten seconds, and just after the lease is due to end by the
    database's clock. It fires when nobody holds the chunk any more (completed, failed, released, the lease
    has run out), when the row has gone, and when a holder appears that keeps no lease. A look that fails is
    logged and tried again. If none succeeds before the lease was last known to end, it fires too: the task
    will see what is wrong.

    Without ``conn_id`` it waits ``seconds``, and touches no database. This is for destinations that cannot be
    written down without a secret, since Airflow stores what a trigger is made from; for those that only dlt's
    configuration on the workers knows; and for DuckDB files, which keep writers out while they are open, and
    need not be on the triggerer's machine.

    The event's payload is a dict with ``deadline`` and ``holder``, as they were given, and ``over``, whether
    the deadline has passed by the clock here. Airflow would keep the arguments of ``defer()`` by itself, but
    ``dag.test()`` loses them on both lines.

    Args:
        backfill_id: The backfill.
        chunk_id: The chunk, six digits.
        seconds: How long the lease is known to live, seconds.
        deadline: Until when to wait, Unix time.
        holder: Who holds the chunk, as the task has logged already; default unknown.
        conn_id: The Airflow connection of the ledger's database; default None, without a look at it.
        dataset_name: The ledger's dataset; with ``conn_id``.
    """

    def __init__(
        self,
        *,
        backfill_id: str,
        chunk_id: str,
        seconds: float,
        deadline: float,
        holder: str | None = None,
        conn_id: str | None = None,
        dataset_name: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.backfill_id = backfill_id
        self.chunk_id = chunk_id
        self.seconds = seconds
        self.deadline = deadline
        self.holder = holder
        self.conn_id = conn_id
        self.dataset_name = dataset_name
        self._target: Target | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "backfill_id": self.backfill_id,
                "chunk_id": self.chunk_id,
                "seconds": self.seconds,
                "deadline": self.deadline,
                "holder": self.holder,
                "conn_id": self.conn_id,
                "dataset_name": self.dataset_name,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        # When the lease ends, as far as is known.
        ends = time.monotonic() + self.seconds
        while True:
            if self.conn_id:
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        ends = time.monotonic() + await self._look()
                except Exception as trouble:  # noqa: BLE001
                    self.log.warning("cannot look at chunk %s: %s", self.chunk_id, self._told(trouble))
                    self._target = None
            left = min(ends - time.monotonic(), self.deadline - time.time())
            if left <= 0:
                break
            await asyncio.sleep(self._pause(left))
        yield TriggerEvent(  # type: ignore[no-untyped-call]
            {"deadline": self.deadline, "holder": self.holder, "over": self.deadline <= time.time()}
        )

    def _pause(self, left: float) -> float:
        """How long to sleep while there are ``left`` seconds: until just after, or until the next look."""
        spread = random.uniform(0, _SPREAD)  # noqa: S311
        until_then = left + 2 * spread
        return min(until_then, POLL_SECONDS * (1 - spread)) if self.conn_id else until_then

    async def _look(self) -> float:
        """How long the chunk stays held, seconds; 0 when the task is to ask for it."""
        # Airflow's own dependency. Before Airflow 3.3 connections are to be had only in threads of this kind.
        from asgiref.sync import sync_to_async

        if self._target is None:
            self._target = await sync_to_async(self._find_target)()
        return await asyncio.to_thread(self._seconds_held, self._target)

    def _find_target(self) -> Target:
        from airflow_provider_backfill.hooks.backfill import BackfillHook

        return BackfillHook(conn_id=self.conn_id, dataset_name=self.dataset_name or "").target

    def _seconds_held(self, target: Target) -> float:
        from airflow_provider_backfill.engine.ledger import Ledger
        from airflow_provider_backfill.engine.records import ChunkStatus
        from airflow_provider_backfill.exceptions import ChunkMissingError

        keys = {"backfill_id": self.backfill_id, "chunk_id": self.chunk_id}
        # Airflow gives the look up after LOOK_SECONDS, and cannot end the thread that is at it.
        with target.connect(LOOK_SECONDS / 2, read_only=True) as session:
            target.dialect.limit_statements(session, LOOK_SECONDS / 4)
            ledger = Ledger(session, target)
            try:
                row = ledger.chunk(**keys)
            except ChunkMissingError:
                return 0
            if row.status is ChunkStatus.COMPLETED:
                return 0
            holder = ledger.holder(**keys)
        # One that keeps no lease is not waited for: the task says what to do.
        return (holder.seconds_left or 0.0) if holder else 0.0

    def _told(self, trouble: BaseException) -> str:
        """The error on one line, without the password."""
        from airflow_provider_backfill._text import line

        text = f"{type(trouble).__name__}: {trouble}"
        return line(self._target.redact(text) if self._target else text)

"""Looks into ledgers, shared by all who look at the same time; the last one is kept for a busy while."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from airflow_provider_backfill._text import line
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.overview import Overview
from airflow_provider_backfill.engine.peek import PATIENCE_SECONDS, Peek, PeekState, peek
from airflow_provider_backfill.exceptions import BackfillError
from airflow_provider_backfill.hooks.backfill import BackfillHook
from airflow_provider_backfill.plugins.ledgers import NamedLedger
from airflow_provider_backfill.version_compat import AirflowNotFoundException

Seen = TypeVar("Seen")
Ask = Callable[[Session, Overview], Seen]

#: For how long a look answers whoever asks the same, seconds.
FRESH_SECONDS = 1.0
#: For how long a database that did not answer is left alone, seconds.
SPARED_SECONDS = 10.0
#: How many looks are kept.
_MOST = 512
#: How many databases are looked into at once.
_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Generic[Seen]):
    """What is known of a ledger.

    Args:
        state: What came of the last look.
        seen: What was seen, now or, where the ledger is busy, before; None if nothing ever was.
        reason: Why the last look saw nothing; None if it did.
        as_of: When it was seen.
    """

    state: PeekState
    seen: Seen | None
    reason: str | None
    as_of: datetime


class Looks:
    """Looks into ledgers. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[float, Look[Any]]] = OrderedDict()
        self._turns: dict[Hashable, threading.Lock] = {}

    def look(self, ledger: NamedLedger, name: Hashable, ask: Ask[Seen]) -> Look[Seen]:
        """Look into a ledger, unless somebody just has.

        Args:
            ledger: Which; it must be readable.
            name: What is asked, so that the same question is the same look.
            ask: How to read it.
        """
        key = (ledger.key, name)
        with self._lock:
            turn = self._turns.setdefault(key, threading.Lock())
        # Whoever asks at the same time waits for this answer, but not for one that does not come.
        if not turn.acquire(timeout=PATIENCE_SECONDS):
            kept = self._kept.get(key)
            reason = f"another request has waited for it for {PATIENCE_SECONDS:g} s"
            return _made(Peek(state=PeekState.BUSY, reason=reason), kept and kept[1])
        try:
            kept = self._kept.get(key)
            if kept is not None:
                age = time.monotonic() - kept[0]
                spared = SPARED_SECONDS if kept[1].state is PeekState.UNREACHABLE else FRESH_SECONDS
                if age < spared:
                    return kept[1]
            made = _made(_peek(ledger, ask), kept and kept[1])
            with self._lock:
                self._kept[key] = time.monotonic(), made
                self._kept.move_to_end(key)
                while len(self._kept) > _MOST:
                    oldest, _ = self._kept.popitem(last=False)
                    self._turns.pop(oldest, None)
            return made
        finally:
            turn.release()

    def look_into_all(self, ledgers: list[NamedLedger], name: Hashable, ask: Ask[Seen]) -> list[Look[Seen]]:
        """Look into several ledgers at once; one look each, in order."""
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            return list(pool.map(lambda ledger: self.look(ledger, name, ask), ledgers))

    def forget(self, ledger: NamedLedger) -> None:
        """Look anew the next time: somebody has changed something."""
        with self._lock:
            for key, (_, look) in list(self._kept.items()):
                if isinstance(key, tuple) and key[0] == ledger.key:
                    self._kept[key] = float("-inf"), look


def target_of(ledger: NamedLedger) -> Target:
    """Where a ledger stands.

    Raises:
        AirflowNotFoundException: There is no such connection.
        BackfillError: The connection leads nowhere.
    """
    hook = BackfillHook(conn_id=ledger.conn_id, dataset_name=ledger.dataset_name, into=ledger.into)
    return hook.target


def _peek(ledger: NamedLedger, ask: Ask[Seen]) -> Peek[Seen]:
    try:
        target = target_of(ledger)
    except (AirflowNotFoundException, BackfillError) as error:
        return Peek(state=PeekState.UNREACHABLE, reason=line(error))
    # Backends for secrets raise what they like, and may quote what they know.
    except Exception as error:  # noqa: BLE001
        reason = f"connection {ledger.conn_id!r} cannot be read ({type(error).__name__})"
        return Peek(state=PeekState.UNREACHABLE, reason=reason)
    return peek(target, ask)


def _made(found: Peek[Seen], before: Look[Seen] | None) -> Look[Seen]:
    if found.state is PeekState.BUSY and before is not None and before.seen is not None:
        return replace(before, state=found.state, reason=found.reason)
    return Look(state=found.state, seen=found.seen, reason=found.reason, as_of=datetime.now(UTC))

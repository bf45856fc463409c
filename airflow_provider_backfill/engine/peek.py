"""Looking into a ledger without keeping anybody from their work: short, bounded, and never an error."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from airflow_provider_backfill._text import line, masked
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.overview import Overview
from airflow_provider_backfill.exceptions import LedgerBusyError, LedgerUnreachableError

Seen = TypeVar("Seen")

#: How long a look may wait for the database, and each of its statements may take, seconds.
PATIENCE_SECONDS = 3.0
#: How long it waits for a file that another process has open, seconds: a load has it for minutes.
FILE_PATIENCE_SECONDS = 0.3

_turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)


class PeekState(StrEnum):
    """What came of a look."""

    READ = "read"
    #: There is no database, or no ledger in it.
    ABSENT = "absent"
    #: Somebody has the file or a lock on the table; it may be read in a moment.
    BUSY = "busy"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek(Generic[Seen]):
    """What a look has seen.

    Args:
        state: What came of it.
        seen: What was asked for; None unless it was read.
        reason: Why it was not, in one line without secrets; None if it was.
    """

    state: PeekState
    seen: Seen | None = None
    reason: str | None = None


def peek(target: Target, ask: Callable[[Session, Overview], Seen]) -> Peek[Seen]:
    """Look into a dataset's ledger. Only reads, and takes a few seconds at most.

    Args:
        target: Whose ledger.
        ask: What to read; it is called in one transaction that cannot write.
    """
    if not target.exists():
        return Peek(state=PeekState.ABSENT, reason="the database does not exist")
    file = target.dialect.single_process
    try:
        with (
            turn(target, FILE_PATIENCE_SECONDS),
            target.connect(FILE_PATIENCE_SECONDS if file else PATIENCE_SECONDS, read_only=True) as session,
        ):
            target.dialect.limit_statements(session, PATIENCE_SECONDS)
            overview = Overview(session, target)
            if not overview.exists():
                return Peek(state=PeekState.ABSENT, reason=f"dataset {target.dataset_name} has no ledger")
            return Peek(state=PeekState.READ, seen=ask(session, overview))
    except LedgerBusyError as error:
        return Peek(state=PeekState.BUSY, reason=_told(target, error.reason))
    except LedgerUnreachableError as error:
        return Peek(state=PeekState.UNREACHABLE, reason=_told(target, error.reason))
    # Whatever a driver raises, such as that the login may not read the table, is for people to see.
    except Exception as error:  # noqa: BLE001
        if target.dialect.is_timeout(error):
            reason = f"it did not answer within {PATIENCE_SECONDS:g} s"
            return Peek(state=PeekState.BUSY, reason=reason)
        return Peek(state=PeekState.UNREACHABLE, reason=_told(target, str(error)))


@contextmanager
def turn(target: Target, wait_seconds: float) -> Iterator[None]:
    """Keep other threads of this process from the database, where they would open it in another way.

    Args:
        target: Its place.
        wait_seconds: How long to wait for them, seconds.

    Raises:
        LedgerBusyError: They took longer.
    """
    if not target.dialect.single_process:
        yield
        return
    lock = _turns[target.credentials]
    if not lock.acquire(timeout=wait_seconds):
        raise LedgerBusyError(target.credentials, wait_seconds, "another request has it open")
    try:
        yield
    finally:
        lock.release()


def _told(target: Target, reason: str) -> str:
    return line(masked(target.redact(reason)))

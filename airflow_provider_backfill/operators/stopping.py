"""Giving a chunk back at once when its task is told to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.destinations.base import Target
    from airflow_provider_backfill.engine.records import Claim

#: How long to try, seconds. Airflow kills a task five seconds after it has told it to stop.
RELEASE_SECONDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A claim, and where it stands.

    Args:
        target: Whose ledger has the claim.
        claim: The claim.
    """

    target: Target
    claim: Claim

    def release(self) -> None:
        """Put the row to ``failed``; best effort, it never raises."""
        # In a thread, since the statement may wait for a lock of the very transaction that was interrupted.
        thread = threading.Thread(target=self._fail, name="release-chunk", daemon=True)
        with suppress(RuntimeError):
            thread.start()
            thread.join(RELEASE_SECONDS)

    def _fail(self) -> None:
        from airflow_provider_backfill.engine.ledger import Ledger

        with suppress(Exception), self.target.connect(RELEASE_SECONDS) as session:
            Ledger(session, self.target).fail(self.claim, "the task was told to stop")


@contextmanager
def told_to_stop(release: Callable[[], None]) -> Iterator[None]:
    """SIGTERM calls ``release`` and then ends the block with ``Stopped``.

    Airflow's own handler calls ``on_kill`` alone on Airflow 3 and lets the task go on until it is killed.
    """
    from airflow_provider_backfill.engine.signals import stoppable

    with stoppable():
        stop = signal.getsignal(signal.SIGTERM)
        if threading.current_thread() is threading.main_thread() and callable(stop):

            def release_and_stop(signum: int, frame: FrameType | None) -> None:
                # A second signal must not cut the clean-up of the first short.
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                release()
                stop(signum, frame)

            signal.signal(signal.SIGTERM, release_and_stop)
        yield

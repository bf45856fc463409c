"""Keeping a claim alive while its attempt runs, and noticing when it is lost."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType

from airflow_provider_backfill._text import line
from airflow_provider_backfill.engine import signals
from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.records import Claim
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.exceptions import ClaimLostError, LedgerBusyError

log = logging.getLogger(__name__)

#: How long a stop waits for a renewal that is under way, seconds.
_HURRY_SECONDS = 1.0


class Heartbeat:
    """Renews a claim's lease from a thread and a connection of its own.

    The lease counts as lost when the ledger says so, or when no renewal got through for as long as it lasts:
    from then on somebody else may hold the chunk. Workers' clocks play no part, only elapsed time.

    Args:
        target: Where the ledger stands.
        claim: The claim to keep.
        settings: How long a lease lasts and how often it is renewed.
    """

    def __init__(self, target: Target, claim: Claim, settings: Settings) -> None:
        self._target = target
        self._claim = claim
        self._settings = settings
        self._stop = threading.Event()
        self._lost: ClaimLostError | None = None
        self._renewed_at = time.monotonic()
        self._thread = threading.Thread(target=self._beat, name=f"lease-{claim.chunk_id}", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Whoever told the attempt to stop is waiting, and a renewal that comes late finds no claim.
        in_a_hurry = error is not None and not isinstance(error, Exception)
        self.stop(_HURRY_SECONDS if in_a_hurry else None)

    def stop(self, seconds: float | None = None) -> None:
        """No renewal happens after this returns, unless one is under way for longer than ``seconds``."""
        self._stop.set()
        self._thread.join(seconds)

    def check(self) -> None:
        """Raise once the claim is lost, so that an attempt stops soon.

        Raises:
            ClaimLostError: Somebody else has the chunk, or may have.
            Stopped: A signal asks to stop, which the main thread has not heard.
        """
        signals.check()
        if self._lost is None and time.monotonic() - self._renewed_at > self._settings.lease_seconds:
            self._lost = ClaimLostError(str(self._claim.number), "go on")
        if self._lost is not None:
            raise self._lost

    def _beat(self) -> None:
        while not self._stop.wait(self._settings.heartbeat_seconds):
            asked_at = time.monotonic()
            try:
                with self._target.connect(self._settings.heartbeat_seconds) as session:
                    Ledger(session, self._target).renew(self._claim, self._settings.lease_seconds)
            except ClaimLostError as error:
                self._lost = error
                return
            except LedgerBusyError as error:
                # Nothing is known, nor lost: an attempt that has the file gives the time back (Ledger.spare).
                self._renewed_at = time.monotonic()
                log.warning("lease of chunk %s was not renewed: %s", self._claim.number, error)
                continue
            except Exception as error:  # noqa: BLE001
                # The database may be back before the lease is over; check() decides.
                reason = line(self._target.redact(str(error)))
                log.warning("lease of chunk %s was not renewed: %s", self._claim.number, reason)
                continue
            self._renewed_at = asked_at

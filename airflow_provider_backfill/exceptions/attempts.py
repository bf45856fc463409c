"""What goes wrong once a backfill runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_provider_backfill._text import line, masked, shown
from airflow_provider_backfill.exceptions.base import BackfillError


class LedgerError(BackfillError):
    """The ledger did not allow a step."""


@dataclass(eq=False, repr=False)
class ClaimLostError(LedgerError):
    """An attempt no longer holds the claim that a ``step`` (for example ``publish``) needs.

    What it loaded is not published. ``chunk`` is as shown to people (``3/5``), ``holder`` who has it now.
    """

    chunk: str
    step: str
    holder: str | None = None

    def _message(self) -> str:
        cause = f"{self.holder} holds it now" if self.holder else "it ran out or was released"
        return (
            f"chunk {self.chunk}: cannot {self.step}, the claim was lost ({cause}); "
            "nothing of this attempt was published, run the window again to see who completes the chunk"
        )


@dataclass(eq=False, repr=False)
class ChunkHeldError(LedgerError):
    """Somebody else holds the ``chunk`` (``3/5``), or a chunk of the same source that overlaps it.

    ``holder`` is host and process id. The lease lives until ``lease_expires_at`` (None: the holder keeps no
    lease), which is ``seconds_left`` from now by the database's clock.
    """

    chunk: str
    holder: str | None
    lease_expires_at: datetime | None
    seconds_left: float | None

    def _message(self) -> str:
        held = f"chunk {self.chunk} is held by {self.holder or 'an unknown worker'}"
        if self.lease_expires_at is None:
            return (
                f"{held} without a lease; once it is sure that nobody works on it, "
                "free it with the command chunked-backfill release"
            )
        left = "" if self.seconds_left is None else f" ({max(0.0, self.seconds_left):.0f} s left)"
        return (
            f"{held} until {self.lease_expires_at.isoformat(timespec='seconds')}{left} unless renewed; "
            "wait until it is done or its lease runs out"
        )


@dataclass(eq=False, repr=False)
class BackfillPausedError(LedgerError):
    """Backfill ``backfill_id`` was paused by ``who`` (user and host) at ``at``; ``why`` may be None."""

    backfill_id: str
    who: str
    at: datetime
    why: str | None = None

    def _message(self) -> str:
        return (
            f"backfill {self.backfill_id} was paused by {_said(self)}; chunks that nobody has claimed wait "
            f"until it goes on: chunked-backfill resume --backfill-id {self.backfill_id}"
        )


@dataclass(eq=False, repr=False)
class BackfillCancelledError(LedgerError):
    """Backfill ``backfill_id`` was cancelled by ``who`` (user and host) at ``at``; ``why`` may be None."""

    backfill_id: str
    who: str
    at: datetime
    why: str | None = None

    def _message(self) -> str:
        return (
            f"backfill {self.backfill_id} was cancelled by {_said(self)}; chunks that nobody has claimed are "
            f"left, to take it up again: chunked-backfill resume --backfill-id {self.backfill_id}"
        )


def _said(error: BackfillPausedError | BackfillCancelledError) -> str:
    because = f" ({line(error.why)})" if error.why else ""
    return f"{error.who} at {error.at.isoformat(timespec='seconds')}{because}"


@dataclass(eq=False, repr=False)
class LedgerBusyError(LedgerError):
    """The ``database`` (or its file) stayed locked for ``waited_seconds``, longer than the wait allows."""

    database: str
    waited_seconds: float
    reason: str = "another process has it open"

    def _message(self) -> str:
        return (
            f"database {masked(self.database)!r} stayed locked for {self.waited_seconds:g} s: "
            f"{line(self.reason)}; close what holds it, run fewer chunks at once, "
            "or raise [chunked_backfill] file_lock_timeout_seconds"
        )


@dataclass(eq=False, repr=False)
class LedgerUnreachableError(LedgerError):
    """The ledger's ``database`` does not answer, or refuses the login."""

    database: str
    reason: str

    def _message(self) -> str:
        return (
            f"database {shown(masked(self.database))} cannot be opened: {line(self.reason)}; "
            "check the address, the login and the file's rights"
        )


@dataclass(eq=False, repr=False)
class ChunkMissingError(LedgerError):
    """The ledger has no row for chunk ``chunk_id`` (six digits) of backfill ``backfill_id``."""

    backfill_id: str
    chunk_id: str

    def _message(self) -> str:
        return (
            f"chunk {self.chunk_id} of backfill {self.backfill_id} is not in the ledger; "
            "plan the window again, which puts missing rows back"
        )


@dataclass(eq=False, repr=False)
class AttemptError(BackfillError):
    """One attempt at the ``chunk`` (``3/5``) failed and left nothing behind. Another may succeed."""

    chunk: str
    reason: str

    def _message(self) -> str:
        return (
            f"chunk {self.chunk} failed: {line(self.reason)}; "
            "nothing of this attempt was published, retry the task or run the window again"
        )


@dataclass(eq=False, repr=False)
class EmptyChunkError(AttemptError):
    """The source had no row for the ``chunk``, and ``on_empty="fail"`` says that this is an error."""

    reason: str = "the source had no row for it"

    def _message(self) -> str:
        return (
            f"chunk {self.chunk} failed: {line(self.reason)}; check what the source was asked for and the "
            "format of its cursor, or pass on_empty='ok' if such chunks are to be expected"
        )


@dataclass(eq=False, repr=False)
class AssertionFailedError(AttemptError):
    """Rows of the ``chunk`` do not pass an assertion with ``on_failure="fail"``; ``reason`` says which."""

    def _message(self) -> str:
        return (
            f"chunk {self.chunk} failed: {line(self.reason)}; nothing of this attempt was published, "
            "mend the source or the assertion, or pass on_failure='quarantine' or 'warn'"
        )

"""Pausing and cancelling a backfill: what a person has said of its chunks that nobody has claimed yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from airflow_provider_backfill.engine.statements import CONTROLS_TABLE, Statements
from airflow_provider_backfill.exceptions import BackfillCancelledError, BackfillPausedError


class ControlState(StrEnum):
    """What becomes of chunks that are not claimed yet."""

    PAUSED = "paused"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What somebody has said of a backfill.

    Args:
        backfill_id: The backfill.
        state: Paused: chunks wait. Cancelled: they are left.
        who: User and host.
        why: One line; None where none was given.
        at: When, by the database's clock.
    """

    backfill_id: str
    state: ControlState
    who: str
    why: str | None
    at: datetime

    def __str__(self) -> str:
        because = f": {self.why}" if self.why else ""
        return f"{self.state} by {self.who} at {self.at.isoformat(timespec='seconds')}{because}"

    def error(self) -> BackfillPausedError | BackfillCancelledError:
        """What keeps a chunk from being claimed."""
        kind = BackfillPausedError if self.state is ControlState.PAUSED else BackfillCancelledError
        return kind(self.backfill_id, self.who, self.at, self.why)


class BackfillControls(Statements):
    """The table ``_dlt_backfill_controls`` beside the ledger: one row a backfill that is paused or cancelled.

    Claims read it under the lock that they take turns by, and it is written under the same lock: once `put`
    returns, no chunk begins.
    """

    file_name = "controls.sql"

    def put(
        self, source_section: str, backfill_id: str, state: ControlState, who: str, why: str | None
    ) -> None:
        """Say it, in place of what was said before.

        Args:
            source_section: The backfill's source, as its rows have it.
            backfill_id: The backfill.
            state: Paused or cancelled.
            who: User and host.
            why: One line; None for none.
        """
        with self._locked(f"claim|{source_section}"):
            self._run("put", {"backfill_id": backfill_id, "state": str(state), "who": who, "why": why})

    def lift(self, source_section: str, backfill_id: str) -> None:
        """Let the backfill go on."""
        with self._locked(f"claim|{source_section}"):
            self._run("lift", {"backfill_id": backfill_id})

    def of(self, backfill_id: str) -> Control | None:
        """What was said of a backfill; None if nothing is. The table must exist."""
        found = self._run("find", {"backfill_id": backfill_id})
        return _control(*found[0]) if found else None

    def read(self, backfill_id: str | None = None) -> dict[str, Control]:
        """By backfill, of one or all; empty where the table does not exist."""
        if not self._has(CONTROLS_TABLE):
            return {}
        found = (_control(*row) for row in self._run("find", {"backfill_id": backfill_id}))
        return {control.backfill_id: control for control in found}

    def check(self, backfill_id: str) -> None:
        """Let nothing begin of a backfill that is paused or cancelled. The table must exist.

        Raises:
            BackfillPausedError: It is paused.
            BackfillCancelledError: It is cancelled.
        """
        control = self.of(backfill_id)
        if control is not None:
            raise control.error()


def _control(backfill_id: Any, state: Any, who: Any, why: Any, at: datetime) -> Control:
    return Control(
        backfill_id=str(backfill_id),
        state=ControlState(state),
        who=str(who),
        why=why,
        at=at.astimezone(UTC),
    )

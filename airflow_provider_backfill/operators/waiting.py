"""How long a task waits for a chunk that somebody else holds."""

from __future__ import annotations

import time
from dataclasses import dataclass

#: How often a task that waits in its worker looks at the chunk, seconds.
POLL_SECONDS = 5.0
#: A wait that short is not worth a deferral, seconds.
SHORT_SECONDS = 1.0
#: Between two looks of a task whose trigger does not look at the ledger, seconds at most.
BLIND_SECONDS = 60.0
#: How long a task of a paused backfill stays away before it looks again, seconds.
PAUSED_SECONDS = 60.0
#: How long Airflow may take to resume a task after its wait, seconds; then it gives the task up.
GRACE_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The wait of one try, over however many deferrals.

    Args:
        deadline: When it ends, Unix time. The clocks of workers decide on this alone, never on a claim.
        holder: Who the log already says is waited for.
    """

    deadline: float
    holder: str | None = None

    @classmethod
    def of(cls, seconds: float) -> Wait:
        """A wait that begins now."""
        return cls(deadline=time.time() + seconds)

    @property
    def left(self) -> float:
        """What is left of it, seconds; not positive once it is over."""
        return self.deadline - time.time()

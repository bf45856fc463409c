"""Whose turn it is among the mapped tasks of one DAG run.

Airflow starts mapped tasks in their order, but the next one when one waits for its retry, and it is known to
lose count of its own limit. So each task looks at the states of those before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

#: States that a task does not leave by itself.
_FAILED = frozenset({"failed", "upstream_failed"})
_FINISHED = _FAILED | {"success", "skipped", "removed"}

#: How long to stay away for each task that has to finish first, and at most, seconds. Not less: a busy
#: scheduler that hears of a task's last run after it was queued again takes it for failed.
PAUSE_SECONDS = 20.0
LONGEST_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What the tasks before one keep it from.

    Args:
        failed: Map indexes of those that failed for good.
        retrying: Map indexes of those that failed and will be tried again.
        ahead: How many have to finish before this one may start.
    """

    failed: tuple[int, ...]
    retrying: tuple[int, ...]
    ahead: int

    @classmethod
    def of(cls, states: Mapping[int, str | None], mine: int, at_once: int) -> Turn:
        """Look at a task's place in the queue.

        Args:
            states: State of each mapped task by its map index; None for one that was not scheduled yet.
            mine: The task's own map index.
            at_once: How many may run at once.
        """
        before = sorted((index, state) for index, state in states.items() if index < mine)
        unfinished = sum(state not in _FINISHED for _, state in before)
        return cls(
            failed=tuple(index for index, state in before if state in _FAILED),
            retrying=tuple(index for index, state in before if state == "up_for_retry"),
            ahead=max(0, unfinished - at_once + 1),
        )

    @property
    def come(self) -> bool:
        """It may start."""
        return not self.ahead and not self.retrying

    def pause(self, retry_delay: timedelta) -> timedelta:
        """How long to stay away: a retry does not come before its delay, and a queue takes its time."""
        seconds = max(self.ahead, 1) * PAUSE_SECONDS
        if self.retrying:
            seconds = max(seconds, retry_delay.total_seconds())
        return timedelta(seconds=min(seconds, LONGEST_PAUSE_SECONDS))

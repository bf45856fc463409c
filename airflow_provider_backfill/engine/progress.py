"""How far an attempt is, said in its log: a line as each step ends, and one now and then while it goes on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

#: Between two lines of a step that goes on, seconds.
PERIOD_SECONDS = 10.0
#: How many tables a line names.
_MOST_TABLES = 10


class Progress:
    """Counts the rows of each table in one step of an attempt after the other.

    Args:
        chunk: The chunk's number for people.
        clock: Monotonic seconds.
    """

    def __init__(self, *, chunk: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._chunk = chunk
        self._clock = clock
        self._step = ""
        self._rows: dict[str, int] = {}
        self._began = self._said = clock()

    def start(self, step: str) -> None:
        """Begin with a step: ``extract``, ``normalize``, ``load``."""
        self._step, self._rows = step, {}
        self._began = self._said = self._clock()

    def add(self, table: str, rows: int) -> None:
        """Count rows of a table; those of dlt's own are not anybody's data."""
        if not table.startswith("_dlt"):
            self._rows[table] = self._rows.get(table, 0) + rows
        if self._clock() - self._said >= PERIOD_SECONDS:
            self._say(" so far")
            self._said = self._clock()

    def end(self) -> None:
        """Say what the step came to."""
        self._say("")

    def _say(self, when: str) -> None:
        shown = [f"{table} {rows} rows" for table, rows in sorted(self._rows.items())[:_MOST_TABLES]]
        if len(self._rows) > _MOST_TABLES:
            shown.append(f"{len(self._rows) - _MOST_TABLES} more tables")
        what = ", ".join(shown) or "no rows"
        log.info(
            "chunk %d %s: %s in %.1f s%s", self._chunk, self._step, what, self._clock() - self._began, when
        )

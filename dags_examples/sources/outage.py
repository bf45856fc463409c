"""Rehearsing a failure: a source that is down once, for one day.

An example has to be able to show what a failure looks like. Nothing of this is needed in a source of yours.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, tzinfo
from pathlib import Path

#: Names a file that holds a day, for example ``2013-01-09``.
VARIABLE = "EXAMPLE_OUTAGE"


def rehearse(start: datetime | None, timezone: tzinfo = UTC) -> None:
    """Raise once for the chunk that starts on the day in the file, which is deleted with that.

    Args:
        start: Where the chunk starts.
        timezone: Where the chunk's days are counted.

    Raises:
        ConnectionError: The rehearsed failure.
    """
    path = Path(os.environ.get(VARIABLE, os.devnull))
    if start is None or not path.is_file():
        return
    day = start.astimezone(timezone).date().isoformat()
    if path.read_text().strip() == day:
        path.unlink()
        raise ConnectionError(f"the source of {day} did not answer (rehearsed)")

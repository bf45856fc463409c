"""What a dataset's ledger and the tables beside it hold, for commands that show it; only reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from typing import Any

from airflow_provider_backfill._text import line
from airflow_provider_backfill.engine.controls import BackfillControls, Control
from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.marks import ChunkMarks, Marked
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from airflow_provider_backfill.engine.runs import Run, Runs
from airflow_provider_backfill.engine.settings import Settings


class Absence(StrEnum):
    """Why there is nothing to show."""

    #: No runs are recorded: there is no database, no ledger, no row in it, or none of that source.
    DATABASE = "database"
    LEDGER = "ledger"
    ROWS = "rows"
    SOURCE = "source"
    #: There may be a ledger, and it cannot be read.
    UNREADABLE = "unreadable"
    #: There can be none.
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a dataset's ledger holds.

    Args:
        rows: Its rows, of one source if one was asked for.
        absent: Why there are none; None if there are some.
        reason: More about it, if it cannot be read or cannot be there.
        sources: The sources that it has rows of.
        now: When it was read, by the database's clock.
        controls: What of it is paused or cancelled, by backfill.
        marks: What people have marked, by backfill and chunk.
        runs: The attempts at these rows, the oldest first.
        runs_unreadable: Why these are not known; None if they are.
    """

    rows: Sequence[ChunkRow] = ()
    absent: Absence | None = None
    reason: str | None = None
    sources: Sequence[str] = ()
    now: datetime | None = None
    controls: Mapping[str, Control] = field(default_factory=dict)
    marks: Mapping[tuple[str, str], Marked] = field(default_factory=dict)
    runs: Sequence[Run] = ()
    runs_unreadable: str | None = None


def read(target: Target, source_name: str | None) -> Reading:
    """Read the ledger of a dataset; ``source_name`` None stands for every source."""
    wait = Settings.from_environment().file_lock_timeout_seconds
    if not target.exists():
        return Reading(absent=Absence.DATABASE)
    with target.connect(wait, read_only=True) as session:
        ledger = Ledger(session, target)
        if not ledger.exists():
            return Reading(absent=Absence.LEDGER)
        rows, now = ledger.dataset_chunks(), ledger.clock()
        controls = BackfillControls(session, target).read()
        marks = ChunkMarks(session, target).latest()
        # Last, since an error may end the transaction.
        runs, unreadable = _runs(Runs(session, target), target)
    sources = sorted({row.source_section for row in rows})
    chosen = [row for row in rows if source_name in (None, row.source_section)]
    ids = {row.backfill_id for row in chosen}
    return Reading(
        rows=chosen,
        absent=None if chosen else Absence.SOURCE if rows else Absence.ROWS,
        sources=sources,
        now=now,
        controls=controls,
        marks=marks,
        runs=[run for run in runs if run.backfill_id in ids],
        runs_unreadable=unreadable,
    )


def _runs(table: Runs, target: Target) -> tuple[Sequence[Run], str | None]:
    """The attempts, or why they are not known: they only tell, and nothing depends on them."""
    try:
        return table.read(), None
    except Exception as error:  # noqa: BLE001
        return (), line(target.redact(str(error)))


def controls(target: Target) -> Mapping[str, Control]:
    """What of a dataset is paused or cancelled, by backfill. Only reads."""
    if not target.exists():
        return {}
    wait = Settings.from_environment().file_lock_timeout_seconds
    with target.connect(wait, read_only=True) as session:
        return BackfillControls(session, target).read()


def absence(reading: Reading, dataset: str, source_name: str | None) -> str:
    """Why a reading holds nothing, as one line."""
    reasons = {
        Absence.DATABASE: "the database does not exist",
        Absence.LEDGER: f"dataset {dataset} has no ledger",
        Absence.ROWS: f"the ledger of dataset {dataset} is empty",
        Absence.SOURCE: f"source {source_name} has none; dataset {dataset} has: {', '.join(reading.sources)}",
    }
    return reading.reason or reasons[reading.absent or Absence.ROWS]


def backfills(rows: Iterable[ChunkRow]) -> Iterable[tuple[tuple[str, int], list[ChunkRow]]]:
    """The rows by backfill, each with its id and how many chunks it has."""
    for backfill_id, group in groupby(rows, key=lambda row: row.backfill_id):
        chunks = list(group)
        # Where another tool has planned, a chunk may stand twice.
        yield (backfill_id, len({row.chunk_id for row in chunks})), chunks


def _source(row: ChunkRow) -> str:
    return f"{row.source_section}:{row.resource_name}" if row.resource_name else row.source_section


def heading(backfill_id: str, total: int, rows: Sequence[ChunkRow]) -> str:
    """A backfill in one line, with how its chunks stand."""
    first = rows[0]
    window = f"[{first.window})"
    standing = ", ".join(f"{count} {word}" for word, count in counts(rows).items() if count)
    what = f"{_source(first)} {window} by {first.chunk_size}"
    return f"Backfill {backfill_id}, {what}: {standing} ({total} chunks)"


def counts(rows: Sequence[ChunkRow]) -> dict[str, int]:
    return {
        "completed": sum(row.status is ChunkStatus.COMPLETED for row in rows),
        "failed": sum(row.status is ChunkStatus.FAILED or row.lapsed for row in rows),
        "held": sum(row.held for row in rows),
        "pending": sum(row.status is ChunkStatus.PENDING for row in rows),
    }


def stand_twice(rows: Sequence[ChunkRow]) -> list[list[ChunkRow]]:
    """The rows of each chunk of a backfill that the ledger has more than once."""
    seen: dict[str, list[ChunkRow]] = {}
    for row in rows:
        seen.setdefault(row.chunk_id, []).append(row)
    return [same for same in seen.values() if len(same) > 1]


def control_document(control: Control | None) -> dict[str, Any] | None:
    """Who has paused or cancelled a backfill, for machines."""
    if control is None:
        return None
    return {
        "state": str(control.state),
        "who": control.who,
        "why": control.why,
        "at": control.at.isoformat(),
    }

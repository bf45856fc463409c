"""``chunked-backfill status``: what the ledger says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

import click

from airflow_provider_backfill.cli.options import common_options, target_options
from airflow_provider_backfill.cli.output import print_table
from airflow_provider_backfill.cli.request import Place
from airflow_provider_backfill.engine.controls import BackfillControls, Control
from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.intervals import plain_bound
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.marks import ChunkMarks, Marked
from airflow_provider_backfill.engine.plan import interval_label
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from airflow_provider_backfill.engine.settings import Settings

_COLUMNS = ("chunk", "interval", "status", "records", "attempt", "run_id", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a dataset's ledger holds.

    Args:
        rows: Its rows, of one source if one was asked for.
        absent: Why there are none: ``database``, ``ledger``, ``source`` or ``rows``; None if there are some.
        sources: The sources that it has rows of.
        now: When it was read, by the database's clock.
        controls: What of it is paused or cancelled, by backfill.
        marks: What people have marked, by backfill and chunk.
    """

    rows: Sequence[ChunkRow] = ()
    absent: str | None = None
    sources: Sequence[str] = ()
    now: datetime | None = None
    controls: Mapping[str, Control] = field(default_factory=dict)
    marks: Mapping[tuple[str, str], Marked] = field(default_factory=dict)


@click.command(short_help="Show what the ledger says.")
@target_options
@click.option("--source", "source_name", metavar="NAME", help="Show this source alone.  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.  [default: off]")
@common_options
def status(*, source_name: str | None, as_json: bool, **options: Any) -> int:
    """Show the chunks of a dataset's backfills. Nothing is ever written.

    JSON has the backfills with their counts and the chunks with every column of the ledger; `absent` tells
    why there are none: no database, no ledger, no rows, or none of that source.
    """
    place = Place(**options)
    reading = read(place.target(), source_name)
    if as_json:
        click.echo(_json(place.dataset, reading))
    elif reading.absent:
        click.echo(f"no runs recorded ({absence(reading, place.dataset, source_name)})")
    else:
        for (backfill_id, total), rows in backfills(reading.rows):
            click.echo(heading(backfill_id, total, rows))
            if backfill_id in reading.controls:
                click.echo(str(reading.controls[backfill_id]))
            print_table(_COLUMNS, [_cells(row, total, reading) for row in rows])
    return 0


def read(target: Target, source_name: str | None) -> Reading:
    """Read the ledger of a dataset; ``source_name`` None stands for every source."""
    wait = Settings.from_environment().file_lock_timeout_seconds
    if not target.exists():
        return Reading(absent="database")
    with target.connect(wait, read_only=True) as session:
        ledger = Ledger(session, target)
        if not ledger.exists():
            return Reading(absent="ledger")
        rows, now = ledger.dataset_chunks(), ledger.clock()
        controls = BackfillControls(session, target).read()
        marks = ChunkMarks(session, target).latest()
    sources = sorted({row.source_section for row in rows})
    chosen = [row for row in rows if source_name in (None, row.source_section)]
    absent = None if chosen else "source" if rows else "rows"
    return Reading(rows=chosen, absent=absent, sources=sources, now=now, controls=controls, marks=marks)


def controls(target: Target) -> Mapping[str, Control]:
    """What of a dataset is paused or cancelled, by backfill. Only reads."""
    if not target.exists():
        return {}
    wait = Settings.from_environment().file_lock_timeout_seconds
    with target.connect(wait, read_only=True) as session:
        return BackfillControls(session, target).read()


def absence(reading: Reading, dataset: str, source_name: str | None) -> str:
    """Why a reading holds nothing."""
    reasons = {
        "database": "the database does not exist",
        "ledger": f"dataset {dataset} has no ledger",
        "rows": f"the ledger of dataset {dataset} is empty",
        "source": f"source {source_name} has none; dataset {dataset} has: {', '.join(reading.sources)}",
    }
    return reasons[reading.absent or "rows"]


def backfills(rows: Iterable[ChunkRow]) -> Iterable[tuple[tuple[str, int], list[ChunkRow]]]:
    """The rows by backfill, each with its id and how many chunks it has."""
    for backfill_id, group in groupby(rows, key=lambda row: row.backfill_id):
        chunks = list(group)
        yield (backfill_id, len(chunks)), chunks


def _source(row: ChunkRow) -> str:
    return f"{row.source_section}:{row.resource_name}" if row.resource_name else row.source_section


def heading(backfill_id: str, total: int, rows: Sequence[ChunkRow]) -> str:
    """A backfill in one line, with how its chunks stand."""
    first = rows[0]
    window = f"[{first.window})"
    standing = ", ".join(f"{count} {word}" for word, count in _counts(rows).items() if count)
    what = f"{_source(first)} {window} by {first.chunk_size}"
    return f"Backfill {backfill_id}, {what}: {standing} ({total} chunks)"


def _counts(rows: Sequence[ChunkRow]) -> dict[str, int]:
    return {
        "completed": sum(row.status is ChunkStatus.COMPLETED for row in rows),
        "failed": sum(row.status is ChunkStatus.FAILED or row.lapsed for row in rows),
        "held": sum(row.held for row in rows),
        "pending": sum(row.status is ChunkStatus.PENDING for row in rows),
    }


def _cells(row: ChunkRow, total: int, reading: Reading) -> tuple[str, ...]:
    timezone = row.chunk_size.partition("@")[2] or "UTC"
    return (
        f"{row.number}/{total}",
        interval_label(row.interval, timezone),
        str(row.status),
        "" if row.records_loaded is None else str(row.records_loaded),
        "" if row.attempt is None else str(row.attempt),
        row.run_id,
        _note(row, reading.marks.get((row.backfill_id, row.chunk_id))),
    )


def _note(row: ChunkRow, marked: Marked | None) -> str:
    if marked is not None and marked.holds(row):
        return str(marked)
    holder = row.claimed_by or "an unknown worker"
    if row.lapsed:
        return f"{holder} let its lease run out"
    if row.held:
        return (
            holder
            if row.lease_left is None
            else f"{holder}, lease runs out in {row.lease_left:.0f} s unless renewed"
        )
    return (row.error or "") if row.status is ChunkStatus.FAILED else ""


def _json(dataset: str, reading: Reading) -> str:
    summaries = [
        {
            "backfill_id": backfill_id,
            "source": rows[0].source_section,
            "resources": rows[0].resource_name.split(",") if rows[0].resource_name else None,
            "from": plain_bound(rows[0].window.start),
            "to": plain_bound(rows[0].window.end),
            "chunk_size": rows[0].chunk_size,
            "chunks": total,
            **_counts(rows),
            "records": sum(row.records_loaded or 0 for row in rows if row.status is ChunkStatus.COMPLETED),
            "control": control_document(reading.controls.get(backfill_id)),
        }
        for (backfill_id, total), rows in backfills(reading.rows)
    ]
    chunks = [
        {
            **row.as_json(),
            "held": row.held,
            "marked": _marked_document(reading.marks.get((row.backfill_id, row.chunk_id)), row),
        }
        for row in reading.rows
    ]
    document = {"dataset": dataset, "absent": reading.absent, "backfills": summaries, "chunks": chunks}
    return json.dumps(document, indent=2, ensure_ascii=False)


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


def _marked_document(marked: Marked | None, row: ChunkRow) -> dict[str, Any] | None:
    if marked is None or not marked.holds(row):
        return None
    return {"mark": str(marked.mark), "who": marked.who, "why": marked.why, "at": marked.at.isoformat()}

"""``chunked-backfill status``: what the ledger says."""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from typing import Any

import click

from airflow_provider_backfill._text import span
from airflow_provider_backfill.cli.options import DEBUG, common_options, hidden, target_options
from airflow_provider_backfill.cli.output import print_table
from airflow_provider_backfill.cli.reading import (
    Absence,
    Reading,
    absence,
    backfills,
    control_document,
    counts,
    heading,
    read,
    stand_twice,
)
from airflow_provider_backfill.cli.request import Place
from airflow_provider_backfill.engine.causes import root_cause
from airflow_provider_backfill.engine.intervals import plain_bound
from airflow_provider_backfill.engine.marks import Marked
from airflow_provider_backfill.engine.pace import Pace, pace_of
from airflow_provider_backfill.engine.plan import interval_label
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from airflow_provider_backfill.engine.runs import Run
from airflow_provider_backfill.exceptions import (
    BackfillError,
    ConnectionTypeError,
    DestinationUnsupportedError,
    RefusedError,
)

_COLUMNS = ("chunk", "interval", "status", "records", "attempt", "run_id", "note")
_ATTEMPT_COLUMNS = ("chunk", "started", "took", "status", "error")
#: How many attempts that came to nothing are shown, the latest; JSON has all.
_MOST_ATTEMPTS = 10


@click.command(short_help="Show what the ledger says.")
@target_options
@click.option("--source", "source_name", metavar="NAME", help="Show this source alone.  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.  [default: off]")
@common_options
def status(*, source_name: str | None, as_json: bool, **options: Any) -> int:
    """Show the chunks of a dataset's backfills, attempts that failed, and the pace. Nothing is ever written.

    Where there is nothing to show, it says why: no runs are recorded, the ledger cannot be read (exit code
    1), or there can be none in this destination (exit code 2). JSON has the backfills with their counts, the
    chunks with every column of the ledger, and the attempts; `absent` and `reason` tell why there are none.
    """
    place = Place(**options)
    reading = _reading(place, source_name)
    if as_json:
        click.echo(_json(place.dataset, reading))
    elif reading.absent:
        lead = {Absence.UNREADABLE: "ledger unreadable: {}", Absence.UNSUPPORTED: "ledger unsupported: {}"}
        text = lead.get(reading.absent, "no runs recorded ({})")
        click.echo(text.format(absence(reading, place.dataset, source_name)))
    else:
        for (backfill_id, total), rows in backfills(reading.rows):
            _show(reading, backfill_id, total, rows)
    return {Absence.UNREADABLE: 1, Absence.UNSUPPORTED: 2}.get(reading.absent, 0) if reading.absent else 0


def _reading(place: Place, source_name: str | None) -> Reading:
    """What the ledger holds. That it cannot be read is an answer too."""
    try:
        return read(place.target(), source_name)
    except (DestinationUnsupportedError, ConnectionTypeError) as error:
        return Reading(absent=Absence.UNSUPPORTED, reason=str(error))
    except (RefusedError, click.ClickException):
        raise
    except Exception as error:  # noqa: BLE001
        context = click.get_current_context()
        if context.meta.get(DEBUG):
            click.echo(hidden(context, "".join(traceback.format_exception(error))), err=True, nl=False)
        text = str(error) if isinstance(error, BackfillError) else root_cause(error)
        return Reading(absent=Absence.UNREADABLE, reason=hidden(context, text))


def _show(reading: Reading, backfill_id: str, total: int, rows: Sequence[ChunkRow]) -> None:
    click.echo(heading(backfill_id, total, rows))
    if backfill_id in reading.controls:
        click.echo(str(reading.controls[backfill_id]))
    twice = stand_twice(rows)
    if twice:
        named = ", ".join(f"{same[0].number}/{total}" for same in twice)
        click.echo(f"more than one row has chunk {named}: mend it with chunked-backfill mend")
    print_table(_COLUMNS, [_cells(row, total, reading) for row in rows])
    measured = pace_of(rows)
    if measured:
        click.echo(_pace(measured))
    runs = [run for run in reading.runs if run.backfill_id == backfill_id]
    if reading.runs_unreadable:
        click.echo(f"attempts unreadable: {reading.runs_unreadable}")
    elif runs:
        _show_attempts(runs, total, rows)


def _pace(measured: Pace) -> str:
    """How fast it goes, by the hour, as backfills that somebody looks at are long."""
    chunks, rows = _hourly(measured)
    speed = f"{_number(chunks)} chunks{'' if rows is None else f' and {_number(rows)} rows'} an hour"
    return f"{speed}; about {span(measured.seconds_left)} left" if measured.seconds_left else speed


def _hourly(measured: Pace) -> tuple[float, float | None]:
    rows = measured.rows_per_second
    return measured.chunks_per_minute * 60, None if rows is None else rows * 3_600


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _show_attempts(runs: Sequence[Run], total: int, rows: Sequence[ChunkRow]) -> None:
    """How many there were, and the latest of those that have not completed their chunk."""
    standing = ", ".join(f"{count} {word}" for word, count in _attempt_counts(runs).items() if count)
    click.echo(f"{len(runs)} attempt{'s' * (len(runs) != 1)}: {standing}")
    numbers = {row.run_id: row.number for row in rows}
    fruitless = [run for run in runs if run.status != ChunkStatus.COMPLETED]
    cells = [
        (
            f"{numbers[run.run_id]}/{total}" if run.run_id in numbers else "",
            run.started_at.isoformat(sep=" ", timespec="seconds"),
            "" if run.seconds is None else span(run.seconds),
            run.status,
            run.error or "",
        )
        for run in fruitless[-_MOST_ATTEMPTS:]
    ]
    if cells:
        print_table(_ATTEMPT_COLUMNS, cells)


def _attempt_counts(runs: Sequence[Run]) -> dict[str, int]:
    words = dict.fromkeys((ChunkStatus.COMPLETED, ChunkStatus.FAILED, *(run.status for run in runs)))
    return {str(word): sum(run.status == word for run in runs) for word in words}


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
    if row.covered_by:
        return f"covered by {row.covered_by}"
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
            **counts(rows),
            "records": sum(row.records_loaded or 0 for row in rows if row.status is ChunkStatus.COMPLETED),
            "control": control_document(reading.controls.get(backfill_id)),
            "stand_twice": [same[0].chunk_id for same in stand_twice(rows)],
            "pace": _pace_document(pace_of(rows)),
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
    document = {
        "dataset": dataset,
        "absent": reading.absent,
        "reason": reading.reason,
        "backfills": summaries,
        "chunks": chunks,
        "attempts": None if reading.runs_unreadable else [run.as_json() for run in reading.runs],
        "attempts_unreadable": reading.runs_unreadable,
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _pace_document(measured: Pace | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    chunks, rows = _hourly(measured)
    return {
        "chunks_per_hour": round(chunks, 1),
        "rows_per_hour": None if rows is None else round(rows, 1),
        "seconds_left": round(measured.seconds_left, 1),
    }


def _marked_document(marked: Marked | None, row: ChunkRow) -> dict[str, Any] | None:
    if marked is None or not marked.holds(row):
        return None
    return {"mark": str(marked.mark), "who": marked.who, "why": marked.why, "at": marked.at.isoformat()}

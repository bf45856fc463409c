"""``chunked-backfill release``: take chunks from who holds them, and drop what dead attempts left."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime

import click

from airflow_provider_backfill._text import span
from airflow_provider_backfill.cli.asking import confirm, person
from airflow_provider_backfill.cli.choosing import Position, positions_of
from airflow_provider_backfill.cli.options import YES, common_options, target_options
from airflow_provider_backfill.cli.output import print_table
from airflow_provider_backfill.cli.reading import Reading, absence, backfills, heading, read
from airflow_provider_backfill.cli.request import Place, misuse
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.observers import recorded
from airflow_provider_backfill.engine.plan import interval_label
from airflow_provider_backfill.engine.records import HELD, ChunkRow, ChunkStatus
from airflow_provider_backfill.engine.runs import Runs
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.statements import RUNS_TABLE
from airflow_provider_backfill.exceptions import ChunkMissingError

_COLUMNS = ("chunk", "interval", "holder", "task", "claimed", "lease")


@click.command(short_help="Take chunks from who holds them.")
@target_options
@click.option("--source", "source_name", metavar="NAME", help="Chunks of this source alone.  [default: all]")
@click.option("--backfill-id", metavar="ID", help="Chunks of this backfill alone.  [default: all]")
@click.option(
    "--chunk",
    "positions",
    multiple=True,
    callback=positions_of,
    metavar="N",
    help="Release this chunk of the backfill; may be repeated. N counts from 1, as everywhere (3 or 3/5); "
    "six digits are a chunk_id, which counts from 000000.  [default: none]",
)
@click.option("--all", "everything", is_flag=True, help="Release every chunk that is held.  [default: off]")
@YES
@common_options
def release(
    *,
    source_name: str | None,
    backfill_id: str | None,
    positions: tuple[Position, ...],
    everything: bool,
    yes: bool,
    **options: str | None,
) -> int:
    """Give held chunks back, so that anybody may claim them, and drop what dead attempts left behind.

    Shows who holds what, and asks. A holder that is still at work loses its claim: it cannot publish, and
    fails. A chunk that somebody else claims meanwhile is not released. Then stages and working directories
    whose claim is gone are dropped. With neither --chunk nor --all, held chunks are only shown; where none is
    held, leftovers are dropped.

    \b
    Example:
      chunked-backfill release --destination duckdb:///web.duckdb --dataset web_raw \\
        --backfill-id d7a7c6e21e0d8ecb --chunk 3

    Exits with 0 when it is done, with 1 when something was not released, with 2 when refused or misused.
    """
    if positions and everything:
        raise misuse("Pass either --chunk or --all")
    if positions and not backfill_id:
        raise misuse("--chunk needs --backfill-id, since every backfill has a chunk of that number")
    place = Place(**options)  # type: ignore[arg-type]
    target = place.target()
    reading = read(target, source_name)
    if reading.absent in ("database", "ledger", "source"):
        raise misuse(f"There is nothing to release: {absence(reading, place.dataset, source_name)}")
    chosen = _chosen(reading, backfill_id, positions)
    held = [row for row in chosen if row.status in HELD]
    _show(reading, held)
    if positions:
        for row in chosen:
            if row not in held:
                click.echo(f"{_name(reading, row)}: nobody holds it, it is {row.status}")
    elif not held:
        click.echo("nothing is held")
    if held and not (positions or everything):
        raise misuse("Nothing was released: pass --all, or --backfill-id and --chunk")
    if held and not yes:
        _ask(len(held))
    failures = _release(target, reading, held, sorted({row.source_section for row in chosen}))
    if failures:
        raise click.ClickException(f"{failures} of {len(held)} chunks were not released")
    return 0


def _chosen(reading: Reading, backfill_id: str | None, positions: Sequence[Position]) -> list[ChunkRow]:
    """The rows that the options mean, held or not."""
    if backfill_id is None:
        return list(reading.rows)
    rows = {row.number: row for row in reading.rows if row.backfill_id == backfill_id}
    if not rows:
        known = ", ".join(dict.fromkeys(row.backfill_id for row in reading.rows)) or "none"
        raise misuse(f"The ledger has no backfill {backfill_id!r}; it has: {known}")
    for position in positions:
        if position.number not in rows or position.total not in (None, len(rows)):
            raise misuse(f"Backfill {backfill_id} has no chunk {position}; it has {len(rows)} chunks")
    numbers = sorted({position.number for position in positions}) or sorted(rows)
    return [rows[number] for number in numbers]


def _total(reading: Reading, row: ChunkRow) -> int:
    return sum(other.backfill_id == row.backfill_id for other in reading.rows)


def _name(reading: Reading, row: ChunkRow) -> str:
    return f"chunk {row.number}/{_total(reading, row)} of backfill {row.backfill_id}"


def _holder(row: ChunkRow) -> str:
    return row.claimed_by or "an unknown worker"


def _show(reading: Reading, held: Sequence[ChunkRow]) -> None:
    for (backfill_id, total), rows in backfills(reading.rows):
        mine = [row for row in held if row.backfill_id == backfill_id]
        if mine:
            click.echo(heading(backfill_id, total, rows))
            lines = [_cells(row, total, reading.now) for row in mine]
            # A run without Airflow knows no tasks.
            used = [n for n in range(len(_COLUMNS)) if any(cells[n] for cells in lines)]
            print_table([_COLUMNS[n] for n in used], [[cells[n] for n in used] for cells in lines])
    if any(row.held and row.lease_left is not None for row in held):
        click.echo("A holder whose lease lives is probably at work, and loses what it has done of the chunk.")
    if any(row.lease_left is None for row in held):
        click.echo("A holder without a lease may not notice that it lost the chunk: be sure it has ended.")


def _cells(row: ChunkRow, total: int, now: datetime | None) -> tuple[str, ...]:
    timezone = row.chunk_size.partition("@")[2] or "UTC"
    claimed = "unknown"
    if row.claimed_at and now:
        claimed = f"{span((now - row.claimed_at).total_seconds())} ago"
    return (
        f"{row.number}/{total}",
        interval_label(row.interval, timezone),
        _holder(row),
        _task(row),
        claimed,
        _lease(row.lease_left),
    )


def _task(row: ChunkRow) -> str:
    mapped = "" if row.map_index is None or row.map_index < 0 else f"[{row.map_index}]"
    parts = (row.dag_id, row.dag_run_id, row.task_id and f"{row.task_id}{mapped}")
    return " ".join(part for part in parts if part)


def _lease(left: float | None) -> str:
    if left is None:
        return "none"
    return f"{span(left)} left" if left > 0 else f"ran out {span(-left)} ago"


def _ask(count: int) -> None:
    confirm(f"Release {count} chunk{'s' * (count != 1)}?", "released")


def _release(target: Target, reading: Reading, held: Sequence[ChunkRow], sources: Sequence[str]) -> int:
    """Release the rows as they were shown and clean up; returns how many could not be released."""
    from airflow_provider_backfill.engine.stage import drop_leftovers

    settings = Settings.from_environment()
    reason = f"released by {person()}"
    failures = 0
    with target.connect(settings.file_lock_timeout_seconds) as session:
        ledger = Ledger(session, target)
        if held:
            # A ledger of another tool lacks the columns that say why a chunk failed.
            ledger.prepare()
        for row in held:
            if ledger.release(row, reason):
                click.echo(f"released {_name(reading, row)}, held by {_holder(row)}")
                _note_in_runs(session, target, row, reason)
            else:
                failures += 1
                current = _read_again(ledger, row)
                click.echo(f"not released: {_name(reading, row)}, {_since(current)}", err=True)
        for source in sources:
            for text in _dropped(drop_leftovers(session, target, source, settings.work_root)):
                click.echo(text)
    return failures


def _note_in_runs(session: Session, target: Target, row: ChunkRow, reason: str) -> None:
    """Another tool's attempt would be recorded as running for good."""
    what = f"chunk {row.number}: the release is not recorded in {RUNS_TABLE}"
    recorded(lambda: Runs(session, target).interrupt(row, reason), target, what)


def _dropped(leftovers: Sequence[str]) -> Iterator[str]:
    for name in leftovers:
        yield f"dropped {'directory' if os.sep in name else 'stage'} {name}"


def _read_again(ledger: Ledger, row: ChunkRow) -> ChunkRow | None:
    try:
        return ledger.chunk(row.backfill_id, row.chunk_id)
    except ChunkMissingError:
        return None


def _since(row: ChunkRow | None) -> str:
    """What became of a chunk that was held when it was shown."""
    if row is None:
        return "its row is gone"
    if row.status in HELD:
        return f"{_holder(row)} has claimed it since"
    return "it was completed since" if row.status is ChunkStatus.COMPLETED else f"it is {row.status} already"

"""``chunked-backfill mark``: tell the ledger what it cannot know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from airflow_provider_backfill.cli.asking import confirm, person
from airflow_provider_backfill.cli.choosing import Known, Selection, chunks, names, selection_options, show
from airflow_provider_backfill.cli.options import YES, common_options, known_options
from airflow_provider_backfill.cli.request import misuse
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.marks import ChunkMarks, Mark
from airflow_provider_backfill.engine.records import CLAIMABLE, ChunkRow, ChunkStatus
from airflow_provider_backfill.engine.settings import Settings


@click.command(short_help="Mark chunks as done or as pending.")
@known_options
@click.option("--done", is_flag=True, help="Chunks that are not to be loaded.  [default: off]")
@click.option("--pending", is_flag=True, help="Completed chunks that are to be loaded again.  [default: off]")
@selection_options
@click.option("--all", "everything", is_flag=True, help="Every chunk of the backfill.  [default: off]")
@click.option("--reason", required=True, metavar="TEXT", help="Why, in one line; it is recorded.")
@click.option(
    "--forget",
    is_flag=True,
    help="With --pending: the rows are gone, so nothing of them is to be replaced.  [default: off]",
)
@YES
@common_options
def mark(
    *,
    done: bool,
    pending: bool,
    everything: bool,
    reason: str,
    forget: bool,
    yes: bool,
    **options: Any,
) -> int:
    """Tell the ledger what it cannot know: that chunks are done, or that they are not.

    --done completes pending and failed chunks without loading them. --pending returns completed chunks, so
    that the next run loads them; what still stands of their rows is replaced in the transaction that
    publishes the new ones. Where the ledger does not know which rows these are, that needs --forget. Held
    chunks are left alone. Who marked what, and why, is recorded. SOURCE and its options are those of `run`.

    \b
    Example:
      chunked-backfill mark --done --destination duckdb:///web.duckdb --dataset web_raw \\
        --backfill-id d7a7c6e21e0d8ecb --only-to 2026-01-03 --reason "loaded by hand"

    Exits with 0 when it is done, with 1 when a chunk was not marked, with 2 when refused or misused.
    """
    selection = Selection.taken(options)
    if done == pending:
        raise misuse("Pass either --done or --pending")
    if forget and not pending:
        raise misuse("--forget goes with --pending")
    if everything == bool(selection.positions or selection.ranged):
        raise misuse("Say which chunks: pass --only, --only-from and --only-to, or --all")
    why = " ".join(reason.split())
    if not why:
        raise misuse("--reason is empty")
    found = Known.of(options)
    total = len(found.rows)
    chosen = selection.of(found.rows)
    word = Mark.DONE if done else Mark.PENDING
    fit = [row for row in chosen if _fits(row, word)]
    others = [row for row in chosen if row not in fit and not _is(row, word)]
    if fit:
        show(fit, total)
    for row in others:
        click.echo(f"chunk {row.number}/{total} is not marked: {_why_not(row, word)}", err=True)
    if not fit:
        click.echo(f"there is nothing to mark as {word}")
        return 1 if others else 0
    if pending:
        _refuse_doubling(found, fit, forget=forget)
    if not yes:
        confirm(f"Mark {chunks(len(fit))} as {word}?", "marked")
    marked = _mark(found, fit, word, why, forget=forget)
    click.echo(f"marked as {word}: {names(marked, total)}" if marked else "nothing was marked")
    missed = [row for row in fit if row not in marked]
    if missed:
        click.echo(f"changed meanwhile, and not marked: {names(missed, total)}", err=True)
    if missed or others:
        raise click.ClickException(f"{len(missed) + len(others)} of {chunks(len(chosen))} were not marked")
    return 0


def _fits(row: ChunkRow, word: Mark) -> bool:
    if word is Mark.DONE:
        return row.status in CLAIMABLE
    return row.status is ChunkStatus.COMPLETED and not row.covered_by


def _is(row: ChunkRow, word: Mark) -> bool:
    """The chunk is so already."""
    return row.status is (ChunkStatus.COMPLETED if word is Mark.DONE else ChunkStatus.PENDING)


def _why_not(row: ChunkRow, word: Mark) -> str:
    if row.covered_by:
        return f"backfill {row.covered_by} has loaded it, so mark it there"
    if row.status is ChunkStatus.FAILED:
        return "it failed, so that the next run loads it anyway"
    holder = row.claimed_by or "an unknown worker"
    if row.lapsed:
        return f"{holder} let its lease run out, so release it first"
    return f"{holder} holds it, so wait for it or release it first"


def _refuse_doubling(found: Known, rows: Sequence[ChunkRow], *, forget: bool) -> None:
    """Refuse what would load rows beside others that stand."""
    total = len(found.rows)
    unknown = [row for row in rows if not row.known]
    if unknown and not forget:
        raise misuse(
            f"Nothing was marked: the ledger does not know the rows of {names(unknown, total)}, which would "
            "stand beside the new ones; delete them by hand, then pass --forget"
        )
    if not forget:
        return
    loads = {load for row in rows for load in row.loads}
    with found.target.connect(_wait(), read_only=True) as session:
        standing = ChunkMarks(session, found.target).standing(loads) if loads else None
    if standing:
        table, count = standing
        raise misuse(
            f"Nothing was marked: table {table} has {count} rows of these chunks, which are to be forgotten; "
            "without --forget they are replaced"
        )


def _mark(found: Known, rows: Sequence[ChunkRow], word: Mark, why: str, *, forget: bool) -> list[ChunkRow]:
    with found.target.connect(_wait()) as session:
        marks = ChunkMarks(session, found.target)
        Ledger(session, found.target).prepare(marks)
        if word is Mark.DONE:
            changed = marks.done(rows, person(), why)
        else:
            changed = marks.pending(rows, person(), why, forget=forget)
    return [row for row in rows if row.chunk_id in changed]


def _wait() -> float:
    return Settings.from_environment().file_lock_timeout_seconds

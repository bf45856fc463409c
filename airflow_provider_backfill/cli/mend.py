"""``chunked-backfill mend``: one row a chunk, where another tool has left more."""

from __future__ import annotations

from collections.abc import Sequence

import click

from airflow_provider_backfill.cli.asking import confirm
from airflow_provider_backfill.cli.options import YES, common_options, target_options
from airflow_provider_backfill.cli.output import print_table
from airflow_provider_backfill.cli.reading import absence, backfills, heading, read, stand_twice
from airflow_provider_backfill.cli.request import Place, misuse
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.plan import interval_label
from airflow_provider_backfill.engine.records import ChunkRow
from airflow_provider_backfill.engine.settings import Settings

_COLUMNS = ("chunk", "interval", "rows")


@click.command(short_help="Leave one row a chunk in the ledger of another tool.")
@target_options
@YES
@common_options
def mend(*, yes: bool, **options: str | None) -> int:
    """Leave one row a chunk in a ledger that another tool has planned in twice at once, and give it a key.

    Shows the rows, and asks. A completed row stays if there is one, else the one that somebody is furthest
    with. Your tables stay as they are: a chunk that two workers took may have been loaded by both, and is
    named, so that you can look.

    \b
    Example:
      chunked-backfill mend --destination duckdb:///web.duckdb --dataset web_raw

    Exits with 0 when each chunk has one row, with 1 when the answer is no, with 2 when refused or misused.
    """
    place = Place(**options)  # type: ignore[arg-type]
    target = place.target()
    reading = read(target, None)
    if reading.absent:
        raise misuse(f"There is nothing to mend: {absence(reading, place.dataset, None)}")
    count = 0
    for (backfill_id, total), rows in backfills(reading.rows):
        twice = stand_twice(rows)
        if twice:
            count += len(twice)
            click.echo(heading(backfill_id, total, rows))
            print_table(_COLUMNS, [_cells(same, total) for same in twice])
            _warn(twice, total)
    if not count:
        click.echo("no chunk stands twice")
        return 0
    if not yes:
        confirm(f"Leave one row of {count} chunk{'s' * (count != 1)}?", "dropped")
    with target.connect(Settings.from_environment().file_lock_timeout_seconds) as session:
        dropped = Ledger(session, target).drop_duplicates()
    click.echo(f"dropped {dropped} row{'s' * (dropped != 1)}; each chunk has one now")
    return 0


def _cells(same: Sequence[ChunkRow], total: int) -> tuple[str, ...]:
    first = same[0]
    return (
        f"{first.number}/{total}",
        interval_label(first.interval, first.timezone),
        ", ".join(f"{row.status} by {row.claimed_by}" if row.claimed_by else str(row.status) for row in same),
    )


def _warn(twice: Sequence[Sequence[ChunkRow]], total: int) -> None:
    for same in twice:
        workers = sorted({row.claimed_by for row in same if row.claimed_by})
        if len(workers) > 1:
            click.echo(
                f"warning: chunk {same[0].number}/{total} was taken by {' and '.join(workers)}: "
                "look whether its rows stand twice in your tables",
                err=True,
            )

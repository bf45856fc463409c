"""``chunked-backfill pause``, ``resume``, ``cancel``: what becomes of chunks that nobody has claimed yet."""

from __future__ import annotations

from typing import Any

import click

from airflow_provider_backfill.cli.asking import person
from airflow_provider_backfill.cli.choosing import Known, chunks
from airflow_provider_backfill.cli.options import common_options, known_options
from airflow_provider_backfill.engine.controls import BackfillControls, ControlState
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.settings import Settings

_REASON = click.option("--reason", metavar="TEXT", help="Why, in one line, for others.  [default: none]")


@click.command(short_help="Let a running backfill wait.")
@known_options
@_REASON
@common_options
def pause(*, reason: str | None, **options: Any) -> int:
    """Let the chunks of a backfill wait that nobody has claimed yet. Those in flight finish.

    Once this has ended, no chunk begins until `resume`: commands wait, tasks of Airflow come again without a
    worker slot. SOURCE and its options are those of `run`.

    \b
    Example:
      chunked-backfill pause --destination duckdb:///web.duckdb --dataset web_raw \\
        --backfill-id d7a7c6e21e0d8ecb --reason "the API is on its knees"
    """
    return _put(Known.of(options), ControlState.PAUSED, reason)


@click.command(short_help="End a running backfill.")
@known_options
@_REASON
@common_options
def cancel(*, reason: str | None, **options: Any) -> int:
    """Leave the chunks of a backfill that nobody has claimed yet. Those in flight finish.

    Once this has ended, no chunk begins until `resume`: commands end with 1, tasks of Airflow are skipped.
    What is completed stays. SOURCE and its options are those of `run`.

    \b
    Example:
      chunked-backfill cancel --destination duckdb:///web.duckdb --dataset web_raw \\
        --backfill-id d7a7c6e21e0d8ecb
    """
    return _put(Known.of(options), ControlState.CANCELLED, reason)


@click.command(short_help="Let a paused or cancelled backfill go on.")
@known_options
@common_options
def resume(**options: Any) -> int:
    """Let a backfill go on that was paused or cancelled.

    What waits goes on by itself. A command that ended is to be run again, and a task that was skipped to be
    cleared. SOURCE and its options are those of `run`.

    \b
    Example:
      chunked-backfill resume --destination duckdb:///web.duckdb --dataset web_raw \\
        --backfill-id d7a7c6e21e0d8ecb
    """
    found = Known.of(options)
    with found.target.connect(Settings.from_environment().file_lock_timeout_seconds) as session:
        controls = BackfillControls(session, found.target)
        control = controls.read(found.backfill_id).get(found.backfill_id)
        if control is not None:
            controls.lift(found.rows[0].source_section, found.backfill_id)
    if control is None:
        click.echo(f"backfill {found.backfill_id} is neither paused nor cancelled")
    else:
        click.echo(f"backfill {found.backfill_id} goes on; it was {control}")
    return 0


def _put(found: Known, state: ControlState, reason: str | None) -> int:
    why = " ".join((reason or "").split()) or None
    with found.target.connect(Settings.from_environment().file_lock_timeout_seconds) as session:
        ledger = Ledger(session, found.target)
        # The ledger may be another tool's.
        ledger.prepare()
        BackfillControls(session, found.target).put(
            found.rows[0].source_section, found.backfill_id, state, person(), why
        )
        rows = ledger.chunks(found.backfill_id)
    click.echo(f"{state} backfill {found.backfill_id}")
    held = [row for row in rows if row.held]
    for row in held:
        click.echo(f"chunk {row.number}/{len(rows)} is in flight at {row.claimed_by or 'an unknown worker'}")
    left = sum(row.status is not ChunkStatus.COMPLETED for row in rows) - len(held)
    click.echo(f"{chunks(left)} {'to wait' if state is ControlState.PAUSED else 'left'}")
    return 0

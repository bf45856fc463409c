"""``chunked-backfill restate``: load completed chunks again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from airflow_provider_backfill.cli import logs
from airflow_provider_backfill.cli.asking import confirm
from airflow_provider_backfill.cli.choosing import Selection, chunks, known, names, selection_options, show
from airflow_provider_backfill.cli.options import YES, common_options, window_options
from airflow_provider_backfill.cli.request import Request
from airflow_provider_backfill.cli.run import load, prepare_process
from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.thresholds import objections
from airflow_provider_backfill.exceptions import RestateError


@click.command(short_help="Load completed chunks again.")
@window_options
@selection_options
@click.option("--run", "go_on", is_flag=True, help="Load them at once, as `run` does.  [default: off]")
@YES
@common_options
def restate(*, go_on: bool, yes: bool, **options: Any) -> int:
    """Return completed chunks of a window, so that they are loaded again.

    Takes the options of `run`; --only, --only-from and --only-to choose some of its chunks. Their rows stay
    until the new ones replace them, each chunk in one transaction. Where old rows cannot be told from others,
    nothing is changed.

    \b
    Example:
      chunked-backfill restate sources.web_events:page_views \\
        --from 2026-01-01T00:00:00Z --to 2026-01-06T00:00:00Z --chunk 1d \\
        --destination duckdb:///web.duckdb --dataset web_raw --only-from 2026-01-03 --only-to 2026-01-05 --run

    Exits with 0 when it is done, with 1 when --run did not cover the window, with 2 when refused or misused.
    """
    selection = Selection.taken(options)
    request = Request.of_given({**options, "yes": yes})
    backfill = request.backfill()
    prepare_process(logs.verbose(), bool(request.place.conn_id))
    plan = backfill.plan()
    found = known(backfill.target, plan.backfill_id, request.place.dataset)
    total = len(found.rows)
    chosen = selection.of(found.rows)
    done = [row for row in chosen if row.status is ChunkStatus.COMPLETED and not row.covered_by]
    for row in chosen:
        if row.covered_by:
            click.echo(
                f"chunk {row.number}/{total}: backfill {row.covered_by} has loaded it, restate that one"
            )
    if not done:
        click.echo(f"none of {chunks(len(chosen))} is to be returned")
        return load(request) if go_on else 0
    show(done, total)
    for row in done:
        if not row.known:
            raise RestateError(f"chunk {row.number}", "the ledger does not say which rows it loaded")
    backfill.check_restatable()
    if not yes:
        if go_on:
            _warn(request, backfill, plan, done)
        confirm(f"Load {chunks(len(done))} again?", "restated")
        request = replace(request, yes=True)
    with backfill.target.connect(backfill.settings.file_lock_timeout_seconds) as session:
        ledger = Ledger(session, backfill.target)
        # A ledger of another tool lacks the columns.
        ledger.prepare()
        ledger.restate(plan.backfill_id, *(row.chunk_id for row in done))
    click.echo(f"to be loaded again: {names(done, total)}; their rows stay until the new ones replace them")
    return load(request) if go_on else 0


def _warn(request: Request, backfill: Backfill, plan: BackfillPlan, done: Sequence[ChunkRow]) -> None:
    """Say what is above a threshold, before it is asked."""
    settings = Settings.from_environment()
    found = backfill.survey(plan, request.concurrency).restated([row.chunk_id for row in done])
    for each in objections([plan], found.estimate, settings):
        click.echo(each.reason, err=True)

"""``chunked-backfill run``: load what is due of a window."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click

from airflow_provider_backfill.cli import logs
from airflow_provider_backfill.cli.options import backfill_options, common_options
from airflow_provider_backfill.cli.output import Bar, Lines
from airflow_provider_backfill.cli.request import Request
from airflow_provider_backfill.cli.status import controls
from airflow_provider_backfill.engine import drive
from airflow_provider_backfill.engine.controls import ControlState
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.report import Tally

INTERRUPTED = "interrupted; a chunk in flight was given back, resume with the same command"


@click.command(short_help="Load what is due of a window.")
@backfill_options
@common_options
def run(**options: Any) -> int:
    """Load the chunks of a window that are not completed yet.

    SOURCE is a dlt source or resource, or a function that returns one: package.module:attribute (the
    current directory is importable) or path/to/file.py:attribute.

    \b
    Example:
      chunked-backfill run sources.web_events:page_views \\
        --from 2026-01-01T00:00:00Z --to 2026-01-06T00:00:00Z --chunk 1d \\
        --destination duckdb:///web.duckdb --dataset web_raw

    Exits with 0 when the window is covered, with 1 when it is not, with 2 when refused or misused. The same
    command again resumes: completed chunks are skipped. Ctrl-C and SIGTERM give back the chunk in flight.
    """
    return load(Request.of(options))


def load(request: Request) -> int:
    """Load what is due, and say what has come of it; returns the exit code.

    Raises:
        click.ClickException: The window is not covered.
    """
    try:
        tally = _run(request)
    except drive.Stopped:
        raise click.ClickException(INTERRUPTED) from None
    click.echo(str(tally))
    if tally.covered:
        _hand_over(request)
        return 0
    for line in tally.shortfall():
        click.echo(line, err=True)
    done = tally.completed + tally.skipped
    control = controls(request.place.target()).get(tally.backfill_id)
    if control is not None and control.state is ControlState.CANCELLED:
        raise click.ClickException(f"{control.error()}; {done} of {tally.total} chunks are completed")
    raise click.ClickException(
        f"the window is not covered, {done} of {tally.total} chunks are completed; "
        "run the same command again to resume"
    )


def _run(request: Request) -> Tally:
    backfill = request.backfill()
    prepare = partial(prepare_process, logs.verbose(), bool(request.place.conn_id))
    prepare()
    plan = backfill.plan()
    if handover := request.handing_over(backfill):
        handover.check()
    rows = backfill.seed(plan)
    if request.redirects:
        aside = request.place.dataset
        click.echo(f"redirected into dataset {backfill.target.dataset_name}; {aside} is left as it is")
    done = sum(row.status is ChunkStatus.COMPLETED for row in rows)
    observer = Bar(plan, done) if sys.stdout.isatty() else Lines(plan)
    with observer:
        return drive.run(
            backfill,
            plan,
            observer,
            concurrency=max(1, min(request.concurrency, len(rows) - done)),
            prepare_worker=prepare,
        )


def _hand_over(request: Request) -> None:
    handover = request.handing_over(request.backfill()) if request.handover else None
    for bookmark in handover.carry_out() if handover else ():
        click.echo(f"handed over to pipeline {request.handover}: {bookmark}")


def prepare_process(verbose: bool, with_airflow: bool) -> None:
    """What each process that loads chunks does first."""
    logs.configure(verbose)
    if with_airflow:
        from airflow_provider_backfill.hooks.backfill import prepare_dlt

        logs.quiet_airflow()
        prepare_dlt()

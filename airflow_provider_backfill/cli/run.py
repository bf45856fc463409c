"""``chunked-backfill run``: load what is due of a window."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import click

from airflow_provider_backfill.cli import logs
from airflow_provider_backfill.cli.asking import confirm, person
from airflow_provider_backfill.cli.options import YES, backfill_options, common_options
from airflow_provider_backfill.cli.output import Bar, Lines
from airflow_provider_backfill.cli.reading import controls
from airflow_provider_backfill.cli.request import Request, can_ask
from airflow_provider_backfill.engine import drive
from airflow_provider_backfill.engine.choice import Chosen
from airflow_provider_backfill.engine.controls import ControlState
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.records import ChunkStatus
from airflow_provider_backfill.engine.report import Tally, half_open, nothing_to_do

INTERRUPTED = "interrupted; a chunk in flight was given back, resume with the same command"


@click.command(short_help="Load what is due of a window.")
@backfill_options
@YES
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

    A plan above max_chunks or max_estimated_hours has to be confirmed: it asks, or takes --yes.

    With a --strategy, the windows are chosen from what the dataset has, and run one after the other; where
    there is nothing to do, it says so.

    Exits with 0 when every window is covered, with 1 when one is not, with 2 when refused or misused. The
    same command again resumes: completed chunks are skipped. Ctrl-C and SIGTERM give back the chunk in
    flight.
    """
    return load(Request.of(options))


def load(request: Request) -> int:
    """Load what is due, and say what has come of it; returns the exit code.

    Raises:
        click.ClickException: A window is not covered.
    """
    tallies = []
    try:
        for tally in _run(request):
            click.echo(str(tally))
            for line in [] if tally.covered else tally.shortfall():
                click.echo(line, err=True)
            tallies.append(tally)
    except drive.Stopped:
        raise click.ClickException(INTERRUPTED) from None
    if all(tally.covered for tally in tallies):
        return 0
    done = sum(tally.completed + tally.skipped for tally in tallies)
    total = sum(tally.total for tally in tallies)
    what = "the window is not" if len(tallies) == 1 else "not every window is"
    for tally in tallies:
        control = None if tally.covered else controls(request.place.target()).get(tally.backfill_id)
        if control is not None and control.state is ControlState.CANCELLED:
            raise click.ClickException(f"{control.error()}; {done} of {total} chunks are completed")
    raise click.ClickException(
        f"{what} covered, {done} of {total} chunks are completed; run the same command again to resume"
    )


def _run(request: Request) -> Iterator[Tally]:
    """Run what is chosen, one after the other, and hand over what is covered then."""
    prepare = partial(prepare_process, logs.verbose(), bool(request.place.conn_id))
    choose = request.chooser()
    prepare()
    chosen = choose()
    if not chosen:
        click.echo(nothing_to_do(request.strategy))
        return
    plans = [backfill.plan() for backfill in chosen.windows]
    chosen.check()
    request.check_handover(chosen)
    if not request.yes:
        _ask(request, chosen, plans)
    chosen.record(person())
    for each in chosen.done:
        click.echo(f"recorded as done without running: {half_open(each.window.interval)}")
    seeded = [
        (backfill, plan, backfill.seed(plan)) for backfill, plan in zip(chosen.windows, plans, strict=True)
    ]
    if request.redirects:
        into = request.place.into
        click.echo(f"redirected into dataset {into}; {request.place.dataset} is left as it is")
    covered = True
    for again in chosen.again:
        with _observer(again.plan, len(again.plan.chunks) - len(again.chunk_ids)) as observer:
            tally = drive.load_again(again, observer)
        covered = covered and tally.covered
        yield tally
    for backfill, plan, rows in seeded:
        done = sum(row.status is ChunkStatus.COMPLETED for row in rows)
        with _observer(plan, done) as observer:
            tally = drive.run(
                backfill,
                plan,
                observer,
                concurrency=max(1, min(request.concurrency, len(rows) - done)),
                prepare_worker=prepare,
            )
        covered = covered and tally.covered
        yield tally
    if covered and (handover := request.handing_over(chosen)):
        for bookmark in handover.carry_out():
            click.echo(f"handed over to pipeline {request.handover}: {bookmark}")


def _ask(request: Request, chosen: Chosen, plans: Sequence[BackfillPlan]) -> None:
    """Have a plan confirmed that is above a threshold, before anything is written.

    Raises:
        RefusedError: Nobody can be asked.
        click.ClickException: The answer is no.
    """
    reasons = request.objections(chosen, plans)
    if reasons and not can_ask():
        raise reasons[0]
    for each in reasons:
        click.echo(each.reason, err=True)
    if reasons:
        confirm("Run it all the same?", "loaded")


def _observer(plan: BackfillPlan, done: int) -> Bar | Lines:
    return Bar(plan, done) if sys.stdout.isatty() else Lines(plan)


def prepare_process(verbose: bool, with_airflow: bool) -> None:
    """What each process that loads chunks does first."""
    logs.configure(verbose)
    if with_airflow:
        from airflow_provider_backfill.hooks.backfill import prepare_dlt

        logs.quiet_airflow()
        prepare_dlt()

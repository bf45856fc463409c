"""``chunked-backfill promote``: move what was loaded into another dataset to where it belongs."""

from __future__ import annotations

from typing import Any

import click

from airflow_provider_backfill.cli.options import common_options, window_options
from airflow_provider_backfill.cli.request import PromoteRequest
from airflow_provider_backfill.cli.run import load


@click.command(short_help="Move a window from another dataset into its own.")
@window_options
@common_options
def promote(**options: Any) -> int:
    """Move a window that `run --into NAME` has loaded from there into --dataset.

    Takes the options of that run. The source is looked at, and none of its rows are read.

    \b
    Example:
      chunked-backfill promote sources.web_events:page_views \\
        --from 2026-01-01T00:00:00Z --to 2026-01-06T00:00:00Z --chunk 1d \\
        --destination duckdb:///web.duckdb --dataset web_raw --into web_look

    Each chunk moves in one transaction, which completes it in the ledger of --dataset too. Exits as run does,
    and the same command again resumes. The other dataset stays as it is; drop it when it is of no more use.
    """
    # How long it is, and what it took to load it, was settled when it was.
    request = PromoteRequest.of_given({**options, "yes": True})
    code = load(request)
    click.echo(f"dataset {request.place.into} is as it was; drop it when it is of no more use")
    return code

"""``chunked-backfill gaps``: what of a window is missing."""

from __future__ import annotations

import json
from typing import Any

import click

from airflow_provider_backfill.cli.options import common_options, gap_options
from airflow_provider_backfill.cli.request import Request
from airflow_provider_backfill.engine.intervals import bound_text, plain_bound


@click.command(short_help="Show what of a window nobody has loaded.")
@gap_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of lines.  [default: off]")
@click.option("--fail-on-gaps", is_flag=True, help="Exit with 1 when something is missing.  [default: off]")
@common_options
def gaps(*, as_json: bool, fail_on_gaps: bool, **options: Any) -> int:
    """Show what of a window no backfill of a source has loaded, merged into ranges.

    Whatever window and chunk size it was loaded with counts. Nothing is written, and no row is read.

    \b
    Example, for monitoring:
      chunked-backfill gaps sources.web_events:page_views --from 2026-01-01 --to 2026-02-01 \\
        --destination duckdb:///web.duckdb --dataset web_raw --fail-on-gaps
    """
    found = Request.of_window(options).gaps()
    if as_json:
        ranges = [{"from": plain_bound(gap.start), "to": plain_bound(gap.end)} for gap in found]
        click.echo(json.dumps({"gaps": ranges}, indent=2))
    elif found:
        for gap in found:
            click.echo(f"[{bound_text(gap.start)} → {bound_text(gap.end)})")
    else:
        click.echo("no gaps")
    return int(bool(found) and fail_on_gaps)

"""``chunked-backfill plan``: what a run would do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from airflow_provider_backfill.cli.options import backfill_options, common_options
from airflow_provider_backfill.cli.output import print_pairs
from airflow_provider_backfill.cli.request import Request
from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.intervals import Interval, plain_bound
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.records import ChunkRow
from airflow_provider_backfill.engine.report import plan_pairs, standing


@click.command(short_help="Show what a run would do.")
@backfill_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.  [default: off]")
@common_options
def plan(*, as_json: bool, **options: Any) -> int:
    """Check a backfill and show its chunks. Nothing is written.

    Takes the options of `run` and refuses what `run` would refuse. Chunks are counted as completed, due (a
    run would load them; the failed ones are among them) and held by somebody else.
    """
    backfill = Request.of(options).backfill()
    made = backfill.plan()
    rows = _rows(backfill, made)
    click.echo(_json(made, rows)) if as_json else print_pairs(plan_pairs(made, rows))
    return 0


def _rows(backfill: Backfill, plan: BackfillPlan) -> list[ChunkRow] | None:
    """The plan's rows; None when the dataset has no ledger."""
    if not backfill.target.exists():
        return None
    wait = backfill.settings.file_lock_timeout_seconds
    with backfill.target.connect(wait, read_only=True) as session:
        ledger = Ledger(session, backfill.target)
        return ledger.chunks(plan.backfill_id) if ledger.exists() else None


def _json(plan: BackfillPlan, rows: Sequence[ChunkRow] | None) -> str:
    window = plan.window
    document: Mapping[str, Any] = {
        "backfill_id": plan.backfill_id,
        "source": plan.source_name,
        "resources": list(plan.resources) or None,
        "from": plain_bound(window.start),
        "to": plain_bound(window.end),
        "timezone": window.timezone,
        "chunk": str(plan.size),
        "chunks": len(plan.chunks),
        "first": _interval(plan.chunks[0].interval),
        "last": _interval(plan.chunks[-1].interval),
        "recorded": rows is not None,
        **standing(plan, rows or ()),
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def _interval(interval: Interval) -> dict[str, Any]:
    return {"from": plain_bound(interval.start), "to": plain_bound(interval.end)}

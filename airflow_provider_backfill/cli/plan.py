"""``chunked-backfill plan``: what a run would do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import click

from airflow_provider_backfill.cli.options import common_options, plan_options
from airflow_provider_backfill.cli.output import print_pairs, print_table
from airflow_provider_backfill.cli.reading import control_document, controls
from airflow_provider_backfill.cli.request import Request
from airflow_provider_backfill.engine.choice import Choice, Chosen
from airflow_provider_backfill.engine.controls import Control
from airflow_provider_backfill.engine.estimates import Estimate
from airflow_provider_backfill.engine.intervals import Interval, plain_bound
from airflow_provider_backfill.engine.report import (
    estimate_line,
    explain,
    half_open,
    nothing_to_do,
    plan_pairs,
    standing,
)
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.survey import Survey
from airflow_provider_backfill.engine.thresholds import too_long


@click.command(short_help="Show what a run would do.")
@plan_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.  [default: off]")
@click.option(
    "--explain", "reasons", is_flag=True, help="Say of each chunk why it is to run, or not.  [default: off]"
)
@common_options
def plan(*, as_json: bool, reasons: bool, chunk: tuple[str, ...], **options: Any) -> int:
    """Check a backfill and show its chunks. Nothing is written.

    Takes the options of `run` and refuses what `run` would refuse. What `run` would ask about, a plan above
    max_chunks or max_estimated_hours, it shows as such. Chunks are counted as completed, covered (other
    backfills have loaded them), due (a run would load them; the failed ones are among them) and held by
    somebody else. The estimate goes by what the source took before. With more than one --chunk, the plans
    are shown one after the other, to compare them; so are the windows that a --strategy chooses.
    """
    found = [_Found.of(Request.of({**options, "yes": True, "chunk": size})) for size in chunk]
    if as_json:
        documents = [each.document(reasons=reasons) for each in found]
        document = documents[0] if len(documents) == 1 else documents
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return 0
    for number, each in enumerate(found):
        if number:
            click.echo()
        each.show(reasons=reasons)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a strategy chose, and how its windows stand."""

    choice: Choice
    chosen: Chosen
    surveys: tuple[Survey, ...]
    controls: Mapping[str, Control]
    settings: Settings

    @classmethod
    def of(cls, request: Request) -> _Found:
        choice = request.choice()
        chosen = choice.make()
        surveys = [each.look(request.concurrency) for each in chosen.windows]
        chosen.check()
        request.check_handover(chosen)
        return cls(
            choice=choice,
            chosen=chosen,
            surveys=tuple(surveys),
            controls=controls(choice.target),
            settings=Settings.from_environment(),
        )

    @property
    def total(self) -> Estimate | None:
        """What all of it will take."""
        return self.chosen.estimate(self.surveys)

    def document(self, *, reasons: bool) -> Mapping[str, Any]:
        windows = [
            _document(each, self.controls.get(each.plan.backfill_id), self.settings, reasons=reasons)
            for each in self.surveys
        ]
        if self.choice.plain:
            return windows[0]
        return {
            "strategy": self.choice.strategy,
            "windows": windows,
            "done": [_interval(each.window.interval) for each in self.chosen.done],
            "again": [
                {"backfill_id": each.plan.backfill_id, "chunks": [int(name) + 1 for name in each.chunk_ids]}
                for each in self.chosen.again
            ],
            "estimate": self.total and _estimate(self.total, self.settings),
        }

    def show(self, *, reasons: bool) -> None:
        if not self.chosen:
            click.echo(nothing_to_do(self.choice.strategy))
        pairs = [("done without running", half_open(each.window.interval)) for each in self.chosen.done]
        for each in self.chosen.again:
            numbers = ", ".join(str(int(name) + 1) for name in each.chunk_ids)
            pairs.append(("loaded again", f"chunks {numbers} of backfill {each.plan.backfill_id}"))
        if pairs:
            print_pairs(pairs)
        for number, survey in enumerate(self.surveys):
            if number or pairs:
                click.echo()
            control = self.controls.get(survey.plan.backfill_id)
            said = [(str(control.state), str(control).partition(" ")[2])] if control else []
            print_pairs([*plan_pairs(survey, self.settings), *said])
            if reasons:
                click.echo()
                print_table(("chunk", "interval", "why"), explain(survey))
        if self.total and (len(self.surveys) > 1 or self.chosen.again):
            click.echo()
            print_pairs([("together", estimate_line(self.total, self.settings))])


def _document(
    found: Survey, control: Control | None, settings: Settings, *, reasons: bool
) -> Mapping[str, Any]:
    plan, window = found.plan, found.plan.window
    document: dict[str, Any] = {
        "backfill_id": plan.backfill_id,
        "source": plan.source_name,
        "resources": list(plan.resources) or None,
        "from": plain_bound(window.start),
        "to": plain_bound(window.end),
        "timezone": window.timezone,
        "chunk": str(plan.size),
        "chunks": len(plan.chunks),
        "first": {**_interval(plan.chunks[0].interval), "label": plan.label(plan.chunks[0].interval)},
        "last": {**_interval(plan.chunks[-1].interval), "label": plan.label(plan.chunks[-1].interval)},
        "recorded": found.rows is not None,
        **standing(found),
        "missing": [_interval(gap) for gap in found.gaps],
        "missing_before": [_interval(gap) for gap in found.before],
        "estimate": _estimate(found.estimate, settings),
        "max_chunks": settings.max_chunks,
        "above_max_chunks": len(plan.chunks) > settings.max_chunks,
        "control": control_document(control),
    }
    if reasons:
        document["explain"] = [
            {"chunk": int(number), "interval": interval, "why": why}
            for number, interval, why in explain(found)
        ]
    return document


def _estimate(found: Estimate, settings: Settings) -> dict[str, Any]:
    return {
        "concurrency": found.concurrency,
        "history": found.history,
        "seconds": found.seconds and asdict(found.seconds),
        "rows": found.rows and asdict(found.rows),
        "chunk_seconds": found.chunk_seconds and asdict(found.chunk_seconds),
        "chunk_rows": found.chunk_rows and asdict(found.chunk_rows),
        "max_estimated_hours": settings.max_estimated_hours,
        "above": too_long(found, settings) is not None,
    }


def _interval(interval: Interval) -> dict[str, Any]:
    return {"from": plain_bound(interval.start), "to": plain_bound(interval.end)}

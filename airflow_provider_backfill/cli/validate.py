"""``chunked-backfill validate``: everything that keeps a source from being backfilled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from airflow_provider_backfill.cli import logs
from airflow_provider_backfill.cli.options import common_options, hidden, look_options
from airflow_provider_backfill.cli.request import Place, make_importable, misuse, without_airflow
from airflow_provider_backfill.engine.backfill import Backfill, cut, first_fields
from airflow_provider_backfill.engine.gates import parse_assertions
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import Finding, RefusedError
from airflow_provider_backfill.exceptions.base import see

if TYPE_CHECKING:
    from dlt.extract.source import DltSource

    from airflow_provider_backfill.engine.plan import BackfillPlan

Made = TypeVar("Made")


@click.command(short_help="Say what keeps a source from being backfilled.")
@look_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.  [default: off]")
@common_options
def validate(*, as_json: bool, **options: Any) -> int:
    """Say everything that would be refused, at once. Nothing is written, and no rows are read.

    SOURCE alone is enough. With a window (--from, --to, --chunk) the rules about its chunks are applied too,
    with a destination and --dataset also whether these can carry the backfill and what the ledger says.

    \b
    Example:
      chunked-backfill validate sources.web_events:page_views --from 2026-01-01 --to 2026-01-06 --chunk 1d

    Exits with 0 when nothing is refused, with 2 when something is.
    """
    examination = _examine(click.get_current_context(), options)
    if as_json:
        click.echo(json.dumps(examination.document(), indent=2, ensure_ascii=False))
    else:
        for paragraph in examination.paragraphs():
            click.echo(paragraph)
    if not examination.findings:
        return 0
    number = len(examination.findings)
    click.echo(f"error: refused for {number} {'reason' if number == 1 else 'reasons'}", err=True)
    return 2


@dataclass(kw_only=True)
class _Examination:
    """What has been found so far.

    Args:
        source: The source as named on the command line.
        hide: Takes passwords out of a text.
        findings: What is refused. An exception is one too, under the name of its class.
        warnings: What is not refused.
        resources: Those that were looked at; None before.
        chunks: Of the window, how many; None before, and without a window.
    """

    source: str
    hide: Callable[[str], str]
    findings: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    resources: tuple[str, ...] | None = None
    chunks: int | None = None

    def attempt(self, step: Callable[..., Made], *arguments: Any) -> Made | None:
        """Go on after a refusal."""
        try:
            return step(*arguments)
        except RefusedError as error:
            finding = Finding.of_error(error)
            self.findings.append(replace(finding, message=self.hide(finding.message)))
            return None

    def paragraphs(self) -> list[str]:
        found = [_paragraph(f"{number}. ", finding) for number, finding in enumerate(self.findings, start=1)]
        found += [_paragraph("warning: ", finding) for finding in self.warnings]
        if not self.findings:
            extent = [_counted(len(self.resources or ()), "resource")]
            if self.chunks is not None:
                extent.append(_counted(self.chunks, "chunk"))
            found.append(f"{self.source}: nothing is refused ({', '.join(extent)})")
        return found

    def document(self) -> Mapping[str, Any]:
        return {
            "source": self.source,
            "resources": None if self.resources is None else list(self.resources),
            "chunks": self.chunks,
            "refused": bool(self.findings),
            "findings": [_object(finding) for finding in self.findings],
            "warnings": [_object(finding) for finding in self.warnings],
        }


def _examine(ctx: click.Context, options: Mapping[str, Any]) -> _Examination:
    place = _place(options)
    whole_window = [options[name] for name in ("start", "end", "chunk")]
    if any(whole_window) and not all(whole_window):
        raise misuse("Pass --from, --to and --chunk together, or none of them")
    if place is None or not place.conn_id:
        without_airflow()
    make_importable()
    found = _Examination(source=options["source"], hide=lambda text: hidden(ctx, text))
    settings = found.attempt(Settings.from_environment) or Settings()
    window, chunk = None, None
    if all(whole_window):
        window = found.attempt(Window.parse, options["start"], options["end"], options["timezone"])
        chunk = found.attempt(ChunkSize.parse, options["chunk"])
    target = found.attempt(place.target) if place else None
    if place and place.conn_id:
        from airflow_provider_backfill.hooks.backfill import prepare_dlt

        logs.quiet_airflow()
        prepare_dlt()
    spec = SourceSpec(
        reference=options["source"],
        arguments=options["arguments"],
        resources=options["resources"],
        name=options["source_name"],
        cursor_format=options["cursor_format"],
        bounded_by=options["bounded_by"],
        cursor_column=options["cursor_column"],
        assertions=found.attempt(parse_assertions, options["assertions"]) or {},
    )
    source = found.attempt(lambda: spec.load(first_fields(spec, window, chunk, settings)))
    plan = None
    if source is not None:
        if window is not None and chunk is not None:
            plan = found.attempt(cut, spec, source, window, chunk, settings)
        _look(found, spec, source, plan)
    if plan is not None and target is not None and window is not None and chunk is not None:
        backfill = Backfill(source=spec, target=target, window=window, chunk=chunk, settings=settings)
        found.attempt(backfill.survey, plan)
    return found


def _place(options: Mapping[str, Any]) -> Place | None:
    given = {name: options[name] for name in ("destination", "conn_id", "dataset")}
    if not any(given.values()):
        return None
    if not given["dataset"]:
        raise misuse("Pass --dataset with the destination, or neither")
    return Place(**given)


def _look(found: _Examination, spec: SourceSpec, source: DltSource, plan: BackfillPlan | None) -> None:
    from airflow_provider_backfill.engine.preflight import examine

    found.resources = tuple(source.selected_resources)
    intervals = [chunk.interval for chunk in plan.chunks] if plan else []
    found.chunks = len(intervals) or None
    report = found.attempt(examine, spec, source, intervals, plan.window.timezone if plan else "UTC")
    if report is not None:
        found.findings += report.findings
        found.warnings += report.warnings


def _paragraph(mark: str, finding: Finding) -> str:
    subject = f"resource {finding.resource!r}: " if finding.resource else ""
    remedy = f"\n   {finding.remedy}" if finding.remedy else ""
    return f"{mark}{subject}{finding.message}{remedy}{see(finding.rule)}"


def _object(finding: Finding) -> Mapping[str, Any]:
    return {
        "rule": finding.rule,
        "resource": finding.resource,
        "message": finding.message,
        "remedy": finding.remedy or None,
        "docs": finding.docs,
    }


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"

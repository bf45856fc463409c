"""Everything that is refused after a look at the source: one rule a function, all findings at once.

`examine` is the whole of it. `look` is the rules of this package, without those about the import and about
bounds that a cursor's format cannot say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.preflight.arguments import with_arguments
from airflow_provider_backfill.engine.preflight.cursors import cursor_in, cursor_of, cursors_of
from airflow_provider_backfill.engine.preflight.once import read_once
from airflow_provider_backfill.engine.preflight.rules import RULES, WARNINGS, Rule
from airflow_provider_backfill.engine.preflight.subject import Subject
from airflow_provider_backfill.engine.preflight.window import WINDOW_RULES
from airflow_provider_backfill.exceptions import Finding, PreflightError

if TYPE_CHECKING:
    from dlt.extract.source import DltSource

    from airflow_provider_backfill.engine.source import SourceSpec

__all__ = [
    "RULES",
    "WARNINGS",
    "WINDOW_RULES",
    "Report",
    "cursor_in",
    "cursor_of",
    "cursors_of",
    "examine",
    "look",
    "preflight",
    "refuse",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the rules have found.

    Args:
        findings: Reasons not to start.
        warnings: What dlt will do otherwise than the source says, and nothing is wrong with.
    """

    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]


def look(
    source: DltSource,
    chunks: Interval | Sequence[Interval] | None = None,
    *,
    formats: Mapping[str, str] | None = None,
    known: Iterable[Finding] = (),
) -> Report:
    """Apply every rule to every selected resource. Reads nothing from the source.

    Args:
        source: A fresh source.
        chunks: The chunks, in order, or the earliest alone; default none, which leaves out the rules about
            the window.
        formats: Cursor formats by resource, ``*`` for those not named; default none. A cursor with a format
            is bound by it, whatever its type.
        known: Findings of others, for example about the import; they come first.
    """
    given = (chunks,) if isinstance(chunks, Interval) else tuple(chunks or ())
    subjects = [
        Subject(resource=resource, chunks=given, formats=formats or {})
        for resource in source.selected_resources.values()
    ]
    # Transformers of one parent each find what is wrong with it.
    return Report(
        findings=tuple(dict.fromkeys([*known, *_apply((*RULES, *WINDOW_RULES), subjects)])),
        warnings=tuple(dict.fromkeys(_apply(WARNINGS, subjects))),
    )


def _apply(rules: Iterable[Rule], subjects: Iterable[Subject]) -> list[Finding]:
    rules = tuple(rules)
    return [finding for subject in subjects for rule in rules for finding in rule(subject)]


def examine(
    spec: SourceSpec, source: DltSource, chunks: Sequence[Interval] = (), timezone: str = "UTC"
) -> Report:
    """Look at a source from every side: how it was imported, its resources, and how chunks bound them.

    Args:
        spec: What the source was made from.
        source: A fresh source that it made.
        chunks: All chunks, in order; default none, which leaves out the rules about the window.
        timezone: Canonical zone of the window, whose days dates are; default ``UTC``.

    Raises:
        CursorFormatError: A format is none, or names a resource that the source does not have.
    """
    from airflow_provider_backfill.engine.binding import effective_formats, unbindable

    formats = spec.cursor_format
    effective_formats(source, formats, whole=bool(chunks) and chunks[0].whole)
    report = look(source, chunks, formats=formats, known=(*spec.imported, *read_once(spec, source)))
    report = replace(report, findings=with_arguments(spec, report.findings))
    if not chunks:
        return report
    said = {(finding.rule, finding.resource) for finding in report.findings}
    more = [
        finding
        for finding in unbindable(source, formats, chunks, timezone)
        if (finding.rule, finding.resource) not in said
    ]
    return Report(findings=(*report.findings, *more), warnings=report.warnings)


def preflight(
    source: DltSource,
    chunks: Interval | Sequence[Interval] | None = None,
    *,
    formats: Mapping[str, str] | None = None,
) -> None:
    """Refuse what `look` finds, and log what it only warns of.

    Args:
        source: See `look`, likewise all others.

    Raises:
        PreflightError: With all findings.
    """
    refuse(look(source, chunks, formats=formats))


def refuse(report: Report) -> None:
    """Log the warnings of a report and raise its findings.

    Raises:
        PreflightError: With all findings, if there are any.
    """
    for warning in report.warnings:
        logger.warning("%s", warning)
    if report.findings:
        raise PreflightError(report.findings)

"""What the arguments of a source say about who bounds it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_provider_backfill.engine.fields import mentioned
from airflow_provider_backfill.exceptions import Finding

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.source import SourceSpec


def with_arguments(spec: SourceSpec, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings about a source, for one that its arguments bound, and those about the arguments.

    Args:
        spec: The source.
        findings: What was found about its resources.
    """
    if spec.bounded_by != "kwargs":
        return tuple(findings)
    # The arguments do what a cursor would.
    kept = tuple(finding for finding in findings if finding.rule != "no-cursor")
    if mentioned(spec.arguments):
        return kept
    finding = Finding(
        rule="chunk-argument",
        resource=None,
        message="it is bounded by its arguments, and none of them mentions the chunk, so every chunk would "
        "load the same rows",
        remedy="pass one that does, e.g. since={chunk.start}, or leave out bounded_by",
    )
    return (*kept, finding)

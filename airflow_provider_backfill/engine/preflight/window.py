"""The rules that need the chunks too. Without chunks they find nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime

from airflow_provider_backfill.engine.preflight.rules import Rule
from airflow_provider_backfill.engine.preflight.subject import Subject
from airflow_provider_backfill.exceptions import Finding


def starts_late(subject: Subject) -> Iterator[Finding]:
    if not subject.chunks or subject.whole:
        return
    first = subject.chunks[0]
    for cursor in subject.cursors:
        if cursor.incremental is None or subject.has_format(cursor):
            continue
        initial = _instant(cursor.incremental.initial_value)
        if initial is not None and initial >= first.instants[1]:
            yield Finding(
                rule="initial-value",
                resource=subject.name,
                message=f"its initial_value {initial.isoformat()} lies behind the first chunk ({first}), "
                "of which dlt would load nothing",
                remedy="set initial_value to the start of the history, or start the window later",
            )


def ends_early(subject: Subject) -> Iterator[Finding]:
    if not subject.chunks or subject.whole:
        return
    last = subject.chunks[-1]
    for cursor in subject.cursors:
        if cursor.incremental is None or subject.has_format(cursor):
            continue
        end = _instant(cursor.incremental.end_value)
        if end is not None and end <= last.instants[0]:
            yield Finding(
                rule="end-value",
                resource=subject.name,
                message=f"its end_value {end.isoformat()} lies before the last chunk ({last}), "
                "of which dlt would load nothing",
                remedy="remove end_value, or end the window there",
            )


def _instant(value: object) -> datetime | None:
    """A time as an instant, as dlt reads it: without an offset it is in UTC. None for anything else."""
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return None


#: In the order in which findings are said.
WINDOW_RULES: tuple[Rule, ...] = (starts_late, ends_early)

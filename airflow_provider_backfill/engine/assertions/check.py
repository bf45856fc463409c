"""Making the assertions about a stage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_backfill.engine import gates
from airflow_provider_backfill.engine.assertions.failing import StagedTable
from airflow_provider_backfill.engine.binding import effective_formats
from airflow_provider_backfill.engine.cursors import EVERY_RESOURCE, CursorFormat
from airflow_provider_backfill.engine.destinations.base import Dialect
from airflow_provider_backfill.engine.extract import Package
from airflow_provider_backfill.engine.gates import Assertion, OnFailure
from airflow_provider_backfill.engine.preflight.cursors import cursor_of
from airflow_provider_backfill.engine.quarantine import query_of, set_aside
from airflow_provider_backfill.engine.records import Claim
from airflow_provider_backfill.engine.supersede import Span
from airflow_provider_backfill.exceptions import AssertionFailedError, GateError

if TYPE_CHECKING:
    from dlt.destinations.job_client_impl import SqlJobClientWithStagingDataset
    from dlt.extract.source import DltSource

    from airflow_provider_backfill.engine.source import SourceSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the assertions leave to be published.

    Args:
        rows: Rows that are left, by table, nested tables included.
        rejected: Rows that were set aside, nested rows not counted; default 0.
        warnings: How many assertions that only warn did not hold; default 0.
    """

    rows: Mapping[str, int]
    rejected: int = 0
    warnings: int = 0

    @property
    def records(self) -> int:
        """All of them."""
        return sum(self.rows.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The assertions that are made about one chunk.

    Args:
        chunk: The chunk's number, for people.
        assertions: Those of each selected resource.
        spans: The chunk's bounds in the cursors of the resources where an assertion is about them.
    """

    chunk: str
    assertions: Mapping[str, Sequence[Assertion]]
    spans: Mapping[Assertion, Mapping[str, Span]] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: SourceSpec, source: DltSource, claim: Claim) -> Gates:
        """Those that a source has for a chunk.

        Args:
            spec: What was asked for.
            source: The source, before it is read.
            claim: The chunk.

        Raises:
            GateError: An assertion is about a cursor, and the resource has none.
        """
        everywhere = tuple(spec.assertions.get(EVERY_RESOURCE, ()))
        listed = {name: (*everywhere, *spec.assertions.get(name, ())) for name in source.selected_resources}
        spans: dict[Assertion, dict[str, Span]] = {
            assertion: {
                name: _span(spec, source, claim, name, assertion)
                for name in listed
                if assertion in listed[name]
            }
            for assertion in {found for found_in in listed.values() for found in found_in}
            if isinstance(assertion, gates.CursorWithinChunk)
        }
        return cls(chunk=str(claim.number), assertions=listed, spans=spans)

    def span(self, assertion: Assertion, resource: str) -> Span | None:
        return self.spans.get(assertion, {}).get(resource)


def _span(
    spec: SourceSpec, source: DltSource, claim: Claim, name: str, assertion: gates.CursorWithinChunk
) -> Span:
    whole = claim.interval.whole
    cursor = cursor_of(source.resources[name])
    column = assertion.column or getattr(cursor, "cursor_path", None) or spec.cursor_column
    if column is None:
        reason = f"is about the cursor of resource {name!r}, which has none"
        remedy = "pass the column that tells when a row is of, e.g. {'cursor_within_chunk': 'day'}"
        raise GateError({assertion.name: assertion.value}, reason, remedy)
    given = spec.cursor_format.get(name, spec.cursor_format.get(EVERY_RESOURCE))
    spelling = effective_formats(source, spec.cursor_format, whole=whole).get(name) or given
    form = CursorFormat.parse(spelling or ("id" if whole else "datetime"))
    start, end = (form.bound(bound, claim.timezone) for bound in (claim.interval.start, claim.interval.end))
    return Span(column=column, start=start, end=end)


def check_stage(
    client: SqlJobClientWithStagingDataset,
    dialect: Dialect,
    made: Gates,
    package: Package,
    chains: Mapping[str, Sequence[str]],
    check: Callable[[], None],
) -> Verdict:
    """Make the assertions, and set aside the rows that go into quarantine.

    Quarantine comes first, in the order in which the assertions are given, so that each row is rejected once.
    All others look at what is left.

    Args:
        client: dlt's client, whose staging dataset is the stage.
        dialect: The database's dialect.
        made: The assertions.
        package: What was extracted.
        chains: The tables of the load, by their roots; none when there are no rows.
        check: Called now and then; raises to stop.

    Raises:
        AssertionFailedError: One that is to fail does not hold; all such are named.
        GateError: One cannot be made about these rows.
    """
    rejected, failures, warnings = 0, list[str](), 0
    with client.with_staging_dataset():
        for resource, assertions in made.assertions.items():
            staged = _Staged(client, dialect, made, resource, chains, check)
            for assertion in assertions:
                if assertion.on_failure == OnFailure.QUARANTINE:
                    rejected += staged.quarantine(assertion)
            for assertion in assertions:
                if assertion.on_failure == OnFailure.QUARANTINE:
                    continue
                fault = staged.fault(assertion)
                if fault is None:
                    continue
                told = f"{resource}: {assertion} does not hold: {fault}"
                if assertion.on_failure == OnFailure.FAIL:
                    failures.append(told)
                else:
                    warnings += 1
                    log.warning("chunk %s: %s; published all the same", made.chunk, told)
        if failures:
            raise AssertionFailedError(made.chunk, "; ".join(failures))
        rows = package.row_counts if not rejected else _left(client, dialect, package)
    return Verdict(rows=rows, rejected=rejected, warnings=warnings)


def _left(client: SqlJobClientWithStagingDataset, dialect: Dialect, package: Package) -> dict[str, int]:
    tables = {file.table for file in package.files} & package.row_counts.keys()
    return {name: StagedTable(client=client, dialect=dialect, name=name).count() for name in tables}


class _Staged:
    """The tables of one resource in the stage."""

    def __init__(
        self,
        client: SqlJobClientWithStagingDataset,
        dialect: Dialect,
        made: Gates,
        resource: str,
        chains: Mapping[str, Sequence[str]],
        check: Callable[[], None],
    ) -> None:
        self._made = made
        self._resource = resource
        self._check = check
        self._chains = chains
        self._tables = [
            StagedTable(client=client, dialect=dialect, name=root)
            for root in chains
            if client.schema.tables[root].get("resource") == resource
        ]

    def quarantine(self, assertion: Assertion) -> int:
        """Set aside what does not pass; returns how many rows, nested ones not counted."""
        total = 0
        for table in self._tables:
            if isinstance(assertion, gates.PythonPredicate):
                found = table.rejected_by(assertion.function(), self._check)
                query = query_of(table, found, f"not {assertion.reference}") if found else None
            else:
                query = table.failing(assertion, self._made.span(assertion, self._resource))
            if query is not None:
                total += set_aside(table, self._chains[table.name], self._resource, assertion, query)
            self._check()
        if total:
            log.warning(
                "chunk %s: %s: %d row(s) do not pass %s and go to _dlt_rejected",
                self._made.chunk,
                self._resource,
                total,
                assertion,
            )
        return total

    def fault(self, assertion: Assertion) -> str | None:
        """Why an assertion does not hold; None if it does."""
        self._check()
        if isinstance(assertion, gates.MinRows | gates.MaxRows):
            rows = sum(table.count() for table in self._tables)
            low = isinstance(assertion, gates.MinRows)
            holds = rows >= assertion.rows if low else rows <= assertion.rows
            return None if holds else f"{rows} rows"
        failing = sum(self._failing(table, assertion) for table in self._tables)
        return f"{failing} rows do not pass" if failing else None

    def _failing(self, table: StagedTable, assertion: Assertion) -> int:
        if isinstance(assertion, gates.PythonPredicate):
            return len(table.rejected_by(assertion.function(), self._check))
        return table.failing_count(assertion, self._made.span(assertion, self._resource))

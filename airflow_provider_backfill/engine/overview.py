"""What a dataset's ledger says at a glance: its backfills, their chunks in few words, and what is loaded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from airflow_provider_backfill.engine.bounds import Bound
from airflow_provider_backfill.engine.controls import BackfillControls, Control
from airflow_provider_backfill.engine.intervals import Interval, merge, missing, restored_bound, stored_bound
from airflow_provider_backfill.engine.ledger import OWN_COLUMNS
from airflow_provider_backfill.engine.pace import LATEST, Finished, Pace, pace
from airflow_provider_backfill.engine.plan import is_whole, timezone_of
from airflow_provider_backfill.engine.records import ChunkRow, restored_interval
from airflow_provider_backfill.engine.statements import LEDGER_TABLE, MAPS_TABLE, RUNS_TABLE, Statements

_COLUMNS = tuple(field.name for field in fields(ChunkRow))
#: How many attempts of a chunk are told.
_MOST_ATTEMPTS = 20


class Condition(StrEnum):
    """How a chunk stands, for people: the ledger's states, and what its other columns add to them."""

    PENDING = "pending"
    #: Claimed or running, and the lease lives.
    HELD = "held"
    #: Claimed or running, and the holder let its lease run out.
    LAPSED = "lapsed"
    FAILED = "failed"
    COMPLETED = "completed"
    #: Completed without running, since other backfills have loaded it.
    COVERED = "covered"


class BackfillState(StrEnum):
    """What becomes of a backfill, in one word."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FAILED = "failed"
    COMPLETED = "completed"


#: Nothing is left to do of them.
DONE = frozenset({Condition.COMPLETED, Condition.COVERED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a chunk failed.

    Args:
        number: The chunk's position, from 1.
        error: One line.
        at: When; None where another tool did not say.
    """

    number: int
    error: str
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillSummary:
    """A backfill at a glance.

    Args:
        backfill_id: Its id.
        source: The source's name.
        resources: The resources that were selected, sorted; empty for all.
        window: What it covers.
        chunk_size: As the ledger stores it, with the zone.
        counts: How many chunks are in each condition; all of them are named.
        rows: How many its completed chunks loaded.
        pace: How fast it goes, and how long the rest takes; None before a chunk is loaded.
        last_error: Why a chunk failed last, of those that are still failed; None if none is.
        control: Who has paused or cancelled it; None if nobody has.
        changed_at: When a chunk changed last; None where another tool did not say.
    """

    backfill_id: str
    source: str
    resources: tuple[str, ...]
    window: Interval
    chunk_size: str
    counts: Mapping[Condition, int]
    rows: int
    pace: Pace | None
    last_error: Failure | None
    control: Control | None
    changed_at: datetime | None

    @property
    def chunks(self) -> int:
        return sum(self.counts.values())

    @property
    def done(self) -> int:
        """How many chunks are completed, by whomever."""
        return sum(self.counts[condition] for condition in DONE)

    @property
    def timezone(self) -> str:
        return timezone_of(self.chunk_size)

    @property
    def state(self) -> BackfillState:
        """All of it in one word. With a chunk in flight it runs, even where no further one will begin."""
        if self.done == self.chunks:
            return BackfillState.COMPLETED
        if self.counts[Condition.HELD]:
            return BackfillState.RUNNING
        if self.control is not None:
            return BackfillState(self.control.state)
        failed = self.counts[Condition.FAILED] + self.counts[Condition.LAPSED]
        return BackfillState.FAILED if failed else BackfillState.PENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One chunk in few words.

    Args:
        number: Its position, from 1.
        interval: What it covers.
        condition: How it stands.
        seconds: How long the attempt took that completed it; None if none did, or unknown.
        rows: How many that loaded; None likewise.
    """

    number: int
    interval: Interval
    condition: Condition
    seconds: float | None
    rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkAttempt:
    """One attempt, as the runs ledger has it.

    Args:
        started_at: When it began.
        completed_at: When it ended; None while it goes on.
        status: ``running``, ``success`` or ``failed``.
        rows: How many it loaded; None if none.
        error: Why it failed, in one line; None if it did not.
    """

    started_at: datetime
    completed_at: datetime | None
    status: str
    rows: int | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCoverage:
    """What of a source is loaded.

    Args:
        extent: From where to where its backfills reach.
        covered: What is loaded of that, in order, none touching another.
        gaps: What is not, likewise.
    """

    extent: Interval
    covered: tuple[Interval, ...]
    gaps: tuple[Interval, ...]


class Overview(Statements):
    """Reads a dataset's ledger at a glance, over one open connection; see `Statements`. Nothing is written.

    The ledger must exist.
    """

    file_name = "overview.sql"

    def exists(self) -> bool:
        return self._has(LEDGER_TABLE)

    def backfills(self, backfill_id: str | None = None) -> list[BackfillSummary]:
        """Every backfill, or one, the one that changed last first."""
        keys = {"backfill_id": backfill_id}
        attempts = defaultdict[str, list[Finished]](list)
        for owner, length, started, completed, rows in self._ask(
            "latest_attempts", {**keys, "latest": LATEST}
        ):
            attempts[str(owner)].append(
                Finished(length=float(length), started=started, completed=completed, rows=rows)
            )
        errors = {
            str(owner): Failure(number=int(chunk_id) + 1, error=str(error), at=_utc(at))
            for owner, chunk_id, error, at in self._ask("last_errors", keys)
        }
        controls = BackfillControls(self._session, self._target).read(backfill_id)
        return [
            _summary(row, attempts[str(row[0])], errors.get(str(row[0])), controls.get(str(row[0])))
            for row in self._ask("backfills", keys)
        ]

    def dags(self) -> dict[str, frozenset[str]]:
        """The DAGs that have planned or claimed a backfill, by its id. One run by command alone has none."""
        found = defaultdict[str, set[str]](set)
        for backfill_id, dag_id in self._ask("claiming_dags"):
            found[str(backfill_id)].add(str(dag_id))
        for dag_id, backfill_ids in self._run("planning_dags") if self._has(MAPS_TABLE) else ():
            for backfill_id in filter(None, backfill_ids.split(",")):
                found[backfill_id].add(str(dag_id))
        return {backfill_id: frozenset(dag_ids) for backfill_id, dag_ids in found.items()}

    def run(self, dag_id: str, run_id: str) -> frozenset[str]:
        """Ids of the backfills that a DAG run has planned, or claimed chunks of."""
        keys = {"dag_id": dag_id, "dag_run_id": run_id}
        claimed = (str(backfill_id) for (backfill_id,) in self._ask("run", keys))
        planned = self._run("planned_by_run", keys) if self._has(MAPS_TABLE) else ()
        named = (backfill_id for (ids,) in planned for backfill_id in filter(None, ids.split(",")))
        return frozenset([*claimed, *named])

    def strip(self, backfill_id: str, chunk_size: str) -> list[Piece]:
        """Every chunk of a backfill in few words, in order.

        Args:
            backfill_id: The backfill.
            chunk_size: Its chunk size as the ledger stores it.
        """
        whole = is_whole(chunk_size)
        return [
            Piece(
                number=int(chunk_id) + 1,
                interval=_interval(start, end, whole=whole),
                condition=Condition(condition),
                seconds=None if seconds is None else float(seconds),
                rows=rows,
            )
            for chunk_id, start, end, condition, seconds, rows in self._ask(
                "strip", {"backfill_id": backfill_id}
            )
        ]

    def page(
        self,
        backfill_id: str,
        *,
        condition: Condition | None = None,
        start: Bound | None = None,
        end: Bound | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> tuple[list[ChunkRow], int]:
        """Some chunks of a backfill in full, in order, and how many there are in all.

        Args:
            backfill_id: The backfill.
            condition: Chunks that stand so; default None, for all.
            start: Chunks that end after it; default None, from the first.
            end: Chunks that begin before it; default None, to the last.
            limit: How many at most; default 100.
            offset: How many to leave out before; default 0.
        """
        keys = {
            "backfill_id": backfill_id,
            "condition": condition and str(condition),
            "start": None if start is None else stored_bound(start),
            "end": None if end is None else stored_bound(end, "end"),
        }
        left = f"extract(epoch FROM (lease_expires_at - {self._target.dialect.fragments['now']}))"
        columns = ", ".join(left if column == "lease_left" else column for column in _COLUMNS)
        rows = self._ask("page", {**keys, "limit": limit, "offset": offset}, columns=columns)
        [(total,)] = self._ask("page_total", keys)
        return [ChunkRow.from_row(_COLUMNS, row) for row in rows], int(total)

    def attempts(self, backfill_id: str, run_id: str) -> list[ChunkAttempt]:
        """The last attempts at a chunk that the runs ledger has, the latest first; it may have none."""
        if not self._has(RUNS_TABLE):
            return []
        keys = {"backfill_id": backfill_id, "run_id": run_id, "limit": _MOST_ATTEMPTS}
        return [
            ChunkAttempt(
                started_at=started.astimezone(UTC),
                completed_at=_utc(completed),
                status=str(status),
                rows=rows,
                error=error,
            )
            for started, completed, status, rows, error in self._run("attempts", keys)
        ]

    def coverage(self, source: str, resources: Sequence[str], *, whole: bool) -> SourceCoverage | None:
        """What of a source is loaded; None if it has no backfill.

        Args:
            source: The source's name.
            resources: Of which resources; empty for all that the source selects. What was loaded of only some
                of them does not count.
            whole: Whether its windows are of whole numbers.
        """
        keys = {"source_section": source}
        [(first, last)] = self._ask("extent", keys)
        if first is None:
            return None
        extent = _interval(first, last, whole=whole)
        mine = set(resources)
        covered = merge(
            _interval(start, end, whole=whole)
            for names, start, end in self._ask("islands", keys)
            if names is None or (mine and mine <= set(names.split(",")))
        )
        return SourceCoverage(extent=extent, covered=covered, gaps=missing(extent, covered))

    def _ask(
        self, name: str, parameters: Mapping[str, Any] | None = None, **words: str
    ) -> list[tuple[Any, ...]]:
        now = self._target.dialect.fragments["now"]
        condition = (
            "CASE WHEN status = 'completed' AND covered_by IS NOT NULL THEN 'covered'"
            f" WHEN status IN ('claimed', 'running') AND lease_expires_at <= {now} THEN 'lapsed'"
            " WHEN status IN ('claimed', 'running') THEN 'held' ELSE status END"
        )
        return self._run(name, parameters, rows=self._all_columns, condition=condition, **words)

    @cached_property
    def _all_columns(self) -> str:
        """The ledger, with the columns that it lacks where another tool made it."""
        present = self._target.dialect.table_columns(self._session, self._target.dataset_name, LEDGER_TABLE)
        absent = [
            f"CAST(NULL AS {kind}) AS {name}" for name, kind in OWN_COLUMNS.items() if name not in present
        ]
        if not absent:
            return self._target.ledger
        return f"(SELECT *, {', '.join(absent)} FROM {self._target.ledger} AS foreign_rows)"


def _summary(
    row: Sequence[Any], attempts: Iterable[Finished], error: Failure | None, control: Control | None
) -> BackfillSummary:
    backfill_id, source, resources, size, start, end, *counts, rows, left, changed = row
    conditions = zip(Condition, map(int, counts), strict=True)
    return BackfillSummary(
        backfill_id=str(backfill_id),
        source=str(source),
        resources=tuple(resources.split(",")) if resources else (),
        window=restored_interval(start, end, size),
        chunk_size=str(size),
        counts=dict(conditions),
        rows=int(rows),
        pace=pace(attempts, float(left)),
        last_error=error,
        control=control,
        changed_at=_utc(changed),
    )


def _interval(start: datetime, end: datetime, *, whole: bool) -> Interval:
    return Interval(
        restored_bound(start.astimezone(UTC), whole=whole), restored_bound(end.astimezone(UTC), whole=whole)
    )


def _utc(value: datetime | None) -> datetime | None:
    return None if value is None else value.astimezone(UTC)

"""Reading the ledger ``_dlt_backfills``; `Ledger` writes it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

from airflow_provider_backfill.engine.coverage import ChunkCoverage, Completed, classify
from airflow_provider_backfill.engine.destinations.base import LEDGER_TABLE
from airflow_provider_backfill.engine.estimates import Measured
from airflow_provider_backfill.engine.inputs import warn_of_new_resources
from airflow_provider_backfill.engine.intervals import SMALLEST_NUMBER, Interval, missing, stored_bound
from airflow_provider_backfill.engine.plan import BackfillPlan, Chunk, source_key
from airflow_provider_backfill.engine.records import (
    ChunkRow,
    Claim,
    Holder,
    SourceChunk,
    restored_interval,
)
from airflow_provider_backfill.engine.selections import Reach, Selection, listed
from airflow_provider_backfill.engine.statements import INPUTS_TABLE, Statements
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import (
    ChunkMissingError,
    DuplicateChunksError,
    OverlapError,
    PlanConflictError,
)

#: What the statement ``stored_inputs`` reads, in its order.
_INPUTS = ("source_section", "resource_name", "backfill_from", "backfill_to", "chunk_size")
_COLUMNS = tuple(field.name for field in fields(ChunkRow))


class LedgerReader(Statements):
    """What the ledger of one dataset says, over one open connection; see `Statements`."""

    file_name = "ledger.sql"

    def exists(self) -> bool:
        return bool(self._table_columns())

    def _table_columns(self) -> list[str]:
        return self._target.dialect.table_columns(self._session, self._target.dataset_name, LEDGER_TABLE)

    def clock(self) -> datetime:
        """The database's time, the only one that claims are compared by."""
        return self._run("clock")[0][0]  # type: ignore[no-any-return]

    def chunks(self, backfill_id: str) -> list[ChunkRow]:
        return self._rows("chunks", {"backfill_id": backfill_id})

    def completed(self, backfill_id: str) -> set[str]:
        """Ids of the chunks of a backfill that are completed."""
        return {str(chunk_id) for (chunk_id,) in self._run("completed", {"backfill_id": backfill_id})}

    def standing(self, backfill_id: str) -> tuple[int, int]:
        """How many chunks of a backfill are completed, and how many it has."""
        [(completed, total)] = self._run("standing", {"backfill_id": backfill_id})
        return int(completed), int(total)

    def chunk(self, backfill_id: str, chunk_id: str) -> ChunkRow:
        """One row.

        Raises:
            ChunkMissingError: There is no such row.
        """
        rows = self._rows("chunk", {"backfill_id": backfill_id, "chunk_id": chunk_id})
        if not rows:
            raise ChunkMissingError(backfill_id, chunk_id)
        return rows[0]

    def dataset_chunks(self, source_section: str | None = None) -> list[ChunkRow]:
        """Every row, or those of one source, ordered by source and window."""
        return self._rows("dataset_chunks", {"source_section": source_section})

    def _rows(self, name: str, parameters: Mapping[str, Any]) -> list[ChunkRow]:
        # A ledger that another tool made and nobody here wrote to yet lacks our columns: they read as empty.
        present = set(self._table_columns())
        left = f"extract(epoch FROM (lease_expires_at - {self._target.dialect.fragments['now']}))"
        expressions = [
            (left if "lease_expires_at" in present else "NULL")
            if column == "lease_left"
            else (column if column in present else "NULL")
            for column in _COLUMNS
        ]
        rows = self._run(name, parameters, columns=", ".join(expressions))
        return [ChunkRow.from_row(_COLUMNS, row) for row in rows]

    def holder(self, backfill_id: str, chunk_id: str) -> Holder | None:
        """Who keeps a chunk from being claimed; None if nobody does."""
        rows = self._run("holder", {"backfill_id": backfill_id, "chunk_id": chunk_id})
        if not rows:
            return None
        claimed_by, expires_at, left = rows[0]
        return Holder(
            claimed_by=claimed_by,
            lease_expires_at=expires_at and expires_at.astimezone(UTC),
            seconds_left=None if left is None else float(left),
        )

    def due(self, plan: BackfillPlan, since: datetime, limit: int, *, reload: bool = False) -> list[str]:
        """Ids of the first chunks that `Ledger.claim_next` would give, at most ``limit``."""
        rows = self._run(
            "due_chunks", {**plan_inputs(plan), "since": since, "limit": limit, "reload": reload}
        )
        return [str(chunk_id) for (chunk_id,) in rows]

    def neighbours(self, claim: Claim) -> dict[int, tuple[Interval, int]]:
        """Interval and rows, by number, of the two chunks before one and the one behind, if completed."""
        beside = {"second": claim.number - 2, "before": claim.number - 1, "behind": claim.number + 1}
        ids = {name: f"{number - 1:06d}" for name, number in beside.items()}
        rows = self._run("neighbours", {"backfill_id": claim.backfill_id, **ids})
        return {
            int(chunk_id) + 1: (restored_interval(start, end, size), int(records))
            for chunk_id, start, end, size, records in rows
        }

    def check_unique(self) -> None:
        """Refuse a table that has a chunk twice.

        Raises:
            DuplicateChunksError: It has.
        """
        for backfill_id, chunk_id in self._run("duplicates"):
            raise DuplicateChunksError(str(backfill_id), str(chunk_id))

    def check(self, plan: BackfillPlan) -> None:
        """Refuse a plan that the ledger contradicts; reads only.

        Raises:
            PlanConflictError: The stored rows of this backfill were made from different inputs.
            DuplicateChunksError: The table, made by another tool, has a chunk twice.
        """
        if not self.exists():
            return
        if not self._has(LEDGER_TABLE, "covered_by"):
            self.check_unique()
        wanted = plan_inputs(plan)
        for row in self._run("stored_inputs", {"backfill_id": plan.backfill_id}):
            stored = zip(_INPUTS, row, strict=True)
            differences = {name: (value, wanted[name]) for name, value in stored if value != wanted[name]}
            if differences:
                raise PlanConflictError(plan.backfill_id, differences)

    def coverage(self, plan: BackfillPlan) -> tuple[ChunkCoverage, ...]:
        """How each chunk of a plan stands to what other backfills of its source have done.

        Raises:
            OverlapError: One that loaded only some of the plan's resources has completed chunks in it.
            PlanConflictError: One that loaded none of them has.
        """
        others = self._completed_elsewhere(plan)
        for other, theirs, mine in others:
            reach = theirs.reach(mine)
            if reach is Reach.SOME:
                raise OverlapError(plan.source, other.backfill_id, plan.label(other.interval), 1)
            if reach is Reach.NONE:
                # Both have one name, so that claims on one keep the other from running.
                resources = (listed(theirs.known), listed(mine.known))
                raise PlanConflictError(other.backfill_id, {"resources": resources})
        _warn_of_new(others)
        return classify(plan, [other for other, *_ in others])

    def check_replaceable(self, plan: BackfillPlan, backfill_ids: Collection[str] | None = None) -> None:
        """Refuse to replace chunks of other backfills that have more resources: their rows would be lost.

        Args:
            plan: What takes their place.
            backfill_ids: The other backfills; default all that have completed chunks in the window.

        Raises:
            PlanConflictError: One has resources that the plan does not load.
        """
        for other, theirs, mine in self._completed_elsewhere(plan):
            if (backfill_ids is None or other.backfill_id in backfill_ids) and not mine.holds(theirs):
                resources = (listed(theirs.known), listed(mine.known))
                raise PlanConflictError(other.backfill_id, {"resources": resources})

    def missing(self, plan: BackfillPlan) -> tuple[Interval, ...]:
        """What of a plan's window no backfill of its source has loaded, not even this one.

        A backfill that loaded only some of the plan's resources has loaded nothing for it.
        """
        others = self._completed_elsewhere(replace(plan, backfill_id=""))
        whole = [each for each in others if each[1].reach(each[2]) is Reach.ALL]
        _warn_of_new(whole)
        return missing(plan.window.interval, [other.interval for other, *_ in whole])

    def missing_before(self, plan: BackfillPlan) -> tuple[Interval, ...]:
        """What is missing likewise between the first chunk that any backfill has loaded and the window."""
        start = plan.window.start
        bounds = {"backfill_from": stored_bound(SMALLEST_NUMBER), "backfill_to": stored_bound(start)}
        found = [
            other.interval
            for other, theirs, mine in self._completed_elsewhere(replace(plan, backfill_id=""), **bounds)
            if theirs.reach(mine) is Reach.ALL and other.interval.whole == plan.window.interval.whole
        ]
        return missing(Interval(found[0].start, start), found) if found else ()

    def _completed_elsewhere(
        self, plan: BackfillPlan, **bounds: datetime
    ) -> list[tuple[Completed, Selection, Selection]]:
        """Completed chunks of other backfills in the window, with their resources and the plan's.

        Args:
            plan: The plan.
            bounds: Others than those of its window.
        """
        found = []
        for backfill_id, chunk_id, start, end, size, named, present, mine, _ in self._foreign(plan, **bounds):
            interval = restored_interval(start, end, size)
            other = Completed(backfill_id=str(backfill_id), chunk_id=str(chunk_id), interval=interval)
            selected = listed(plan.selected) or mine
            found.append(
                (other, Selection.of(named, present), Selection.of(listed(plan.resources), selected))
            )
        return found

    def unknown_loads_inside(self, plan: BackfillPlan) -> str | None:
        """A chunk of another backfill in the window of whose rows the ledger does not know the load."""
        unknown = [str(row[0]) for row in self._foreign(plan) if row[-1]]
        return unknown[0] if unknown else None

    def _foreign(self, plan: BackfillPlan, **bounds: datetime) -> list[tuple[Any, ...]]:
        return self._run(
            "foreign_chunks",
            {**plan_inputs(plan), **bounds},
            **self._own_columns("other."),
            **self._present(),
        )

    def source_chunks(self, source_name: str, resources: Sequence[str]) -> list[SourceChunk]:
        """Every chunk of a source that has to do with these resources (none: with all), in order."""
        selected = ",".join(sorted(set(resources))) or None
        rows = self._run(
            "source_chunks",
            {"source_section": source_name, "resource_name": selected},
            **self._own_columns("other."),
            **self._present(),
        )
        return [SourceChunk.from_row(row) for row in rows]

    def recorded_plan(self, backfill_id: str) -> BackfillPlan:
        """The plan of a backfill that is in the ledger.

        Raises:
            ChunkMissingError: It is not.
        """
        rows = self.chunks(backfill_id)
        if not rows:
            raise ChunkMissingError(backfill_id, "000000")
        window = rows[0].window
        return replace(
            plan_of(rows[0]),
            window=Window(start=window.start, end=window.end, timezone=rows[0].timezone),
            chunks=tuple(chunk for row in rows for chunk in plan_of(row).chunks),
        )

    def history(self, source_name: str, limit: int = 500) -> list[Measured]:
        """What the latest attempts of a source took and brought, the last first."""
        rows = self._run("history", {"source_section": source_name, "limit": limit}, **self._own_columns())
        return [
            Measured(interval=restored_interval(start, end, size), seconds=float(seconds), rows=records)
            for start, end, size, seconds, records in rows
        ]

    def _present(self) -> dict[str, str]:
        """What says in SQL which resources another backfill was planned with, and which the plan's."""
        backfills = {"present": "other.backfill_id", "present_mine": ":backfill_id"}
        if not self._has(INPUTS_TABLE):
            return dict.fromkeys(backfills, "NULL")
        planned = f"SELECT resources FROM {self._target.table(INPUTS_TABLE)} AS planned"
        return {name: f"({planned} WHERE planned.backfill_id = {key})" for name, key in backfills.items()}

    def _own_columns(self, prefix: str = "") -> dict[str, str]:
        """Columns that a ledger lacks that another tool made and nobody here wrote to yet."""
        there = self._has(LEDGER_TABLE, "covered_by")
        names = ("load_ids", "covered_by", "lease_expires_at")
        return {name: f"{prefix}{name}" if there else "NULL" for name in names}

    def live_tokens(self, source_section: str) -> frozenset[str]:
        """Tokens of the claims that live, so that only what nobody uses is cleaned up."""
        rows = self._run("live_tokens", {"source_section": source_section})
        return frozenset(str(token) for (token,) in rows)


def _warn_of_new(others: Iterable[tuple[Completed, Selection, Selection]]) -> None:
    """Warn of what completed chunks have none of since the source got it later."""
    for other, theirs, mine in others:
        if names := theirs.lacks(mine):
            # Once is enough: what helps is the same for all.
            warn_of_new_resources(other.backfill_id, names)
            return


def plan_inputs(plan: BackfillPlan) -> dict[str, Any]:
    """A plan as the ledger's columns have it."""
    interval = plan.window.interval
    return {
        "pipeline_name": plan.source_name,
        "source_section": plan.source_name,
        "resource_name": ",".join(plan.resources) or None,
        "backfill_id": plan.backfill_id,
        "backfill_from": stored_bound(interval.start),
        "backfill_to": stored_bound(interval.end),
        "chunk_size": plan.chunk_size,
    }


def plan_of(row: ChunkRow) -> BackfillPlan:
    """The part of its backfill's plan that a row is."""
    window = Window(start=row.interval.start, end=row.interval.end, timezone=row.timezone)
    resources = row.resource_name.split(",") if row.resource_name else None
    return BackfillPlan(
        source=source_key(row.source_section, resources),
        window=window,
        size=ChunkSize.parse(row.chunk_size.partition("@")[0]),
        backfill_id=row.backfill_id,
        chunks=(Chunk(index=row.number - 1, interval=row.interval, run_id=row.run_id),),
    )

"""Reading the ledger ``_dlt_backfills``; `Ledger` writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from airflow_provider_backfill.engine.destinations.base import LEDGER_TABLE
from airflow_provider_backfill.engine.intervals import Interval, stored_bound
from airflow_provider_backfill.engine.plan import BackfillPlan
from airflow_provider_backfill.engine.records import ChunkRow, Claim, Holder, restored_interval
from airflow_provider_backfill.engine.statements import Statements
from airflow_provider_backfill.exceptions import ChunkMissingError

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

    def due(self, plan: BackfillPlan, since: datetime, limit: int) -> list[str]:
        """Ids of the first chunks that `Ledger.claim_next` would give, at most ``limit``."""
        rows = self._run("due_chunks", {**plan_inputs(plan), "since": since, "limit": limit})
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

    def live_tokens(self, source_section: str) -> frozenset[str]:
        """Tokens of the claims that live, so that only what nobody uses is cleaned up."""
        rows = self._run("live_tokens", {"source_section": source_section})
        return frozenset(str(token) for (token,) in rows)


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

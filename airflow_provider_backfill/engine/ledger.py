"""The ledger ``_dlt_backfills``: one row a chunk, every change one guarded UPDATE."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from airflow_provider_backfill._text import masked
from airflow_provider_backfill.engine.destinations.base import LEDGER_TABLE
from airflow_provider_backfill.engine.intervals import Interval, bound_text, stored_bound
from airflow_provider_backfill.engine.plan import BackfillPlan, source_key, timezone_of
from airflow_provider_backfill.engine.records import ChunkRow, Claim, Claimant, Holder, restored_interval
from airflow_provider_backfill.engine.statements import Statements
from airflow_provider_backfill.exceptions import (
    ChunkHeldError,
    ChunkMissingError,
    ClaimLostError,
    DuplicateChunksError,
    OverlapError,
    PlanConflictError,
)

#: Columns that only this project writes; a table of another tool gets them added.
OWN_COLUMNS: Mapping[str, str] = {
    "attempt": "INTEGER",
    "claim_token": "TEXT",
    "lease_expires_at": "TIMESTAMPTZ",
    "will_retry": "BOOLEAN",
    "error": "TEXT",
    "load_ids": "TEXT",
    "covered_by": "TEXT",
    "dag_id": "TEXT",
    "dag_run_id": "TEXT",
    "task_id": "TEXT",
    "map_index": "INTEGER",
    "updated_at": "TIMESTAMPTZ",
}

#: What the statement ``stored_inputs`` reads, in its order.
_INPUTS = ("source_section", "resource_name", "backfill_from", "backfill_to", "chunk_size")
_COLUMNS = tuple(field.name for field in fields(ChunkRow))
ERROR_LIMIT = 1_000
#: How many chunks a claimant asks for before it believes that there is none.
_LOOKS = 5


class Ledger(Statements):
    """The ledger of one dataset, over one open connection; see `Statements`."""

    file_name = "ledger.sql"

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        dialect = self._target.dialect
        with dialect.exclusive(self._target), self._session.transaction():
            dialect.lock(self._session, f"{self._target.dataset_name}|{key}")
            yield

    # Reading

    def exists(self) -> bool:
        return bool(self._table_columns())

    def _table_columns(self) -> list[str]:
        return self._target.dialect.table_columns(self._session, self._target.dataset_name, LEDGER_TABLE)

    def clock(self) -> datetime:
        """The database's time, the only one that claims are compared by."""
        return self._run("clock")[0][0]  # type: ignore[no-any-return]

    def chunks(self, backfill_id: str) -> list[ChunkRow]:
        return self._rows("chunks", {"backfill_id": backfill_id})

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

    # Planning

    def prepare(self) -> None:
        """Create the ledger, or add what a table of another tool lacks; several planners may start at once.

        Raises:
            DuplicateChunksError: The table has a chunk twice, so it cannot be made unique.
        """
        with self._locked("ledger"):
            present = set(self._table_columns())
            if not present:
                self._target.dialect.create_schema(self._session, self._target.dataset_name)
                self._run("create_ledger")
            missing = [column for column in OWN_COLUMNS if column not in present]
            for column in missing:
                self._run("add_column", column=column, type=OWN_COLUMNS[column])
            if missing:
                twice = self._run("duplicate_chunks")
                if twice:
                    raise DuplicateChunksError(*map(str, twice[0]))
                self._run("create_unique_index", index=self._target.dialect.quote(f"{LEDGER_TABLE}_chunk"))

    def check(self, plan: BackfillPlan) -> None:
        """Refuse a plan that the ledger contradicts; reads only.

        Raises:
            PlanConflictError: The stored rows of this backfill were made from different inputs.
            OverlapError: Another backfill of the source has completed chunks in the window.
        """
        if not self.exists():
            return
        wanted = _inputs(plan)
        for row in self._run("stored_inputs", {"backfill_id": plan.backfill_id}):
            stored = zip(_INPUTS, row, strict=True)
            differences = {name: (value, wanted[name]) for name, value in stored if value != wanted[name]}
            if differences:
                raise PlanConflictError(plan.backfill_id, differences)
        self._refuse_overlaps(plan.source, wanted)

    def _refuse_overlaps(self, source: str, wanted: Mapping[str, Any]) -> None:
        # A ledger that another tool made, and nobody here wrote to yet, has no versions.
        replaced = "other.load_ids IS NOT NULL" if self._has(LEDGER_TABLE, "load_ids") else "FALSE"
        overlaps = self._run("foreign_chunks", wanted, replaced=replaced)
        if overlaps:
            backfill_id, start, end, size, count = overlaps[0]
            raise OverlapError(source, str(backfill_id), restored_interval(start, end, size), int(count))

    def seed(self, plan: BackfillPlan) -> None:
        """Insert the plan's rows as ``pending``, in one statement; rows that stand already are left alone."""
        chunks = [
            {
                "chunk_id": chunk.chunk_id,
                "chunk_from": bound_text(stored_bound(chunk.interval.start)),
                "chunk_to": bound_text(stored_bound(chunk.interval.end)),
                "run_id": chunk.run_id,
            }
            for chunk in plan.chunks
        ]
        self._run("seed", {**_inputs(plan), "chunks": json.dumps(chunks)})

    def neighbours(self, claim: Claim) -> dict[int, tuple[Interval, int]]:
        """Interval and rows, by number, of the two chunks before one and the one behind, if completed."""
        beside = {"second": claim.number - 2, "before": claim.number - 1, "behind": claim.number + 1}
        ids = {name: f"{number - 1:06d}" for name, number in beside.items()}
        rows = self._run("neighbours", {"backfill_id": claim.backfill_id, **ids})
        return {
            int(chunk_id) + 1: (restored_interval(start, end, size), int(records))
            for chunk_id, start, end, size, records in rows
        }

    # Claims

    def claim(self, row: ChunkRow, claimant: Claimant, lease_seconds: float) -> Claim:
        """Take a chunk.

        Raises:
            ChunkHeldError: A live claim, this chunk's or one of the same source that overlaps it, stands.
            OverlapError: Another backfill of the source has completed some of it since it was planned.
            ChunkMissingError: There is no such row any more.
        """
        keys = {"backfill_id": row.backfill_id, "chunk_id": row.chunk_id}
        with self._locked(f"claim|{row.source_section}"):
            claim = self._claim(row.backfill_id, row.chunk_id, claimant, lease_seconds)
            if claim:
                return claim
            holder = self.holder(**keys)
            if holder is None:
                selected = row.resource_name.split(",") if row.resource_name else None
                self._refuse_overlaps(source_key(row.source_section, selected), _span(row))
                # Completed since the row was read, or free as of just now: whoever asks again finds out.
                holder = Holder(
                    claimed_by=self.chunk(**keys).claimed_by,
                    lease_expires_at=self.clock().astimezone(UTC),
                    seconds_left=0,
                )
            # Raised in here, so that leases that ran out beside the chunk stay their holders'.
            raise ChunkHeldError(
                chunk=str(row.number),
                holder=holder.claimed_by,
                lease_expires_at=holder.lease_expires_at,
                seconds_left=holder.seconds_left,
            )

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

    def claim_next(
        self, plan: BackfillPlan, claimant: Claimant, lease_seconds: float, since: datetime
    ) -> Claim | None:
        """Take the first chunk that may be had; None when there is none.

        Args:
            plan: The backfill.
            claimant: Who asks.
            lease_seconds: How long the claim lives without a renewal.
            since: When this run began, by the database's clock: what failed later has had its turn.
        """
        with self._locked(f"claim|{plan.source_name}"):
            for chunk_id in self.due(plan, since, _LOOKS):
                # One that was being published when its lease ran out is completed by the time it answers.
                if claim := self._claim(plan.backfill_id, chunk_id, claimant, lease_seconds):
                    return claim
            return None

    def due(self, plan: BackfillPlan, since: datetime, limit: int) -> list[str]:
        """Ids of the first chunks that :meth:`claim_next` would give, at most ``limit``."""
        rows = self._run("due_chunks", {**_inputs(plan), "since": since, "limit": limit})
        return [str(chunk_id) for (chunk_id,) in rows]

    def _claim(
        self, backfill_id: str, chunk_id: str, claimant: Claimant, lease_seconds: float
    ) -> Claim | None:
        keys = {"backfill_id": backfill_id, "chunk_id": chunk_id}
        self._run("lapse", keys)
        token = secrets.token_hex(8)
        rows = self._run(
            "claim",
            {
                **keys,
                "token": token,
                "lease_seconds": lease_seconds,
                "claimed_by": claimant.claimed_by,
                "dag_id": claimant.dag_id,
                "dag_run_id": claimant.dag_run_id,
                "task_id": claimant.task_id,
                "map_index": claimant.map_index,
            },
        )
        if not rows:
            return None
        attempt, start, end, size, run_id, load_ids = rows[0]
        claim = Claim(
            backfill_id=backfill_id,
            chunk_id=chunk_id,
            token=token,
            attempt=attempt,
            interval=restored_interval(start, end, size),
            timezone=timezone_of(size),
            run_id=run_id,
            superseded=tuple(load_ids.split(",")) if load_ids else (),
        )
        self._guarded("start", claim)
        return claim

    def _guarded(self, name: str, claim: Claim, **parameters: Any) -> None:
        keys = {"backfill_id": claim.backfill_id, "chunk_id": claim.chunk_id, "token": claim.token}
        # A heartbeat's renewal must not meet a claim of the same row in this process.
        with self._target.dialect.exclusive(self._target):
            changed = self._run(name, {**keys, **parameters})
        if not changed:
            rows = self._run("owner", keys)
            raise ClaimLostError(str(claim.number), name, rows[0][0] if rows else None)

    def renew(self, claim: Claim, lease_seconds: float) -> None:
        """Push the end of the lease out.

        Raises:
            ClaimLostError: Somebody else took the chunk. So do the next two.
        """
        self._guarded("renew", claim, lease_seconds=lease_seconds)

    def spare(self, seconds: float) -> None:
        """Give back to every live claim the time that this process had the database to itself.

        Holders could not renew meanwhile. Leases that had run out before are left so. The one change of a
        claim that does not name its token: it takes nothing from anybody.

        Args:
            seconds: For how long it had it, seconds.
        """
        with self._target.dialect.exclusive(self._target):
            self._run("spare", {"seconds": seconds})

    def complete(self, claim: Claim, records: int, load_ids: Sequence[str]) -> None:
        """``running -> completed``; call it in the transaction that publishes the rows."""
        self._guarded("complete", claim, records_loaded=records, load_ids=",".join(load_ids) or None)

    def fail(self, claim: Claim, error: str, *, will_retry: bool | None = None) -> None:
        """Give the chunk back as ``failed``, with a one-line reason."""
        text = masked(self._target.redact(error))
        # Databases refuse NUL and lone surrogates, which would keep the chunk from being given back.
        words = "".join(char if char.isprintable() else " " for char in text).split()
        self._guarded("fail", claim, error=" ".join(words)[:ERROR_LIMIT], will_retry=will_retry)

    def release(self, row: ChunkRow, reason: str) -> bool:
        """Take the chunk from its holder, alive or not, and give it back as ``failed``.

        Args:
            row: The row as it was read; whoever claimed it since keeps it.
            reason: One line for the row's ``error``.

        Returns:
            False if the row does not hold this claim any more; nothing was changed then.
        """
        # DuckDB keeps the threads of one process apart no more than a heartbeat's renewal.
        with self._target.dialect.exclusive(self._target):
            changed = self._run(
                "release",
                {
                    "backfill_id": row.backfill_id,
                    "chunk_id": row.chunk_id,
                    "token": row.claim_token,
                    "claimed_by": row.claimed_by,
                    "claimed_at": row.claimed_at,
                    "error": reason,
                },
            )
        return bool(changed)

    def restate(self, backfill_id: str, chunk_id: str) -> None:
        """``completed -> pending``: the next version of the chunk replaces the rows of this one.

        Raises:
            ChunkMissingError: There is no such row, or it is not completed.
        """
        if not self._run("restate", {"backfill_id": backfill_id, "chunk_id": chunk_id}):
            raise ChunkMissingError(backfill_id, chunk_id)

    def live_tokens(self, source_section: str) -> frozenset[str]:
        """Tokens of the claims that live, so that only what nobody uses is cleaned up."""
        rows = self._run("live_tokens", {"source_section": source_section})
        return frozenset(str(token) for (token,) in rows)


def _inputs(plan: BackfillPlan) -> dict[str, Any]:
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


def _span(row: ChunkRow) -> dict[str, Any]:
    """A row as ``foreign_chunks`` asks for it, with the chunk in the window's place."""
    return {
        "source_section": row.source_section,
        "resource_name": row.resource_name,
        "backfill_id": row.backfill_id,
        "backfill_from": row.chunk_from,
        "backfill_to": row.chunk_to,
    }

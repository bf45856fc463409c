"""The ledger ``_dlt_backfills``: one row a chunk, every change one guarded UPDATE."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_provider_backfill._text import masked, storable
from airflow_provider_backfill.engine.controls import BackfillControls
from airflow_provider_backfill.engine.coverage import ChunkCoverage, Standing
from airflow_provider_backfill.engine.destinations.base import LEDGER_TABLE
from airflow_provider_backfill.engine.intervals import bound_text, stored_bound
from airflow_provider_backfill.engine.ledger_reader import LedgerReader, plan_inputs, plan_of
from airflow_provider_backfill.engine.overlaps import Overlap, overlapping
from airflow_provider_backfill.engine.plan import BackfillPlan, timezone_of
from airflow_provider_backfill.engine.records import ChunkRow, Claim, Claimant, Holder, restored_interval
from airflow_provider_backfill.engine.statements import Statements
from airflow_provider_backfill.exceptions import (
    ChunkHeldError,
    ChunkMissingError,
    ClaimLostError,
    RestateError,
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

ERROR_LIMIT = 1_000
#: How many chunks a claimant asks for before it believes that there is none.
_LOOKS = 5


class Ledger(LedgerReader):
    """The ledger of one dataset, over one open connection; see `Statements`."""

    # Planning

    def prepare(self, *beside: Statements) -> None:
        """Create the ledger, or add what a table of another tool lacks; several planners may start at once.

        Args:
            beside: What has its table beside the ledger, which is created with it.

        Raises:
            DuplicateChunksError: The table has a chunk twice, so it cannot be made unique.
        """
        with self._locked("ledger"):
            present = set(self._table_columns())
            if not present:
                self._target.dialect.create_schema(self._session, self._target.dataset_name)
                self.create()
            missing = [column for column in OWN_COLUMNS if column not in present]
            for column in missing:
                self._run("add_column", column=column, type=OWN_COLUMNS[column])
            if missing:
                self.check_unique()
                self._run("create_unique_index", index=self._target.dialect.quote(f"{LEDGER_TABLE}_chunk"))
            # Claims read the controls, whoever prepared the ledger.
            for tables in (BackfillControls(self._session, self._target), *beside):
                tables.create()

    def drop_duplicates(self) -> int:
        """Leave one row of each chunk, and see to it that it stays so; returns how many rows were dropped."""
        with self._locked("ledger"):
            dropped = self._run("drop_duplicates", row_id=self._target.dialect.row_id[0])
        self.prepare()
        return len(dropped)

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
        self._run("seed", {**plan_inputs(plan), "chunks": json.dumps(chunks)})

    def cover(self, backfill_id: str, covered: Iterable[ChunkCoverage]) -> int:
        """Record chunks as completed that other backfills have loaded; returns how many these were.

        Those that are under way stay, and those of which a version stands that is to be replaced.
        """
        chunks = [{"id": each.chunk.chunk_id, "backfills": each.covered_by} for each in covered]
        if not chunks:
            return 0
        with self._target.dialect.exclusive(self._target):
            return len(self._run("cover", {"backfill_id": backfill_id, "chunks": json.dumps(chunks)}))

    def absorb(self, claim: Claim) -> list[str]:
        """Record the chunks inside one as covered by it, in the transaction that publishes its rows.

        Returns:
            Their run ids.
        """
        keys = {"backfill_id": claim.backfill_id, "chunk_id": claim.chunk_id}
        return [
            str(run_id) for (run_id,) in (*self._run("absorb", keys), *self._run("absorb_restated", keys))
        ]

    # Claims

    def claim(
        self, row: ChunkRow, claimant: Claimant, lease_seconds: float, *, reload: bool = False
    ) -> Claim | None:
        """Take a chunk; None if other backfills have loaded it, which is recorded then.

        Args:
            row: The chunk, as it was read.
            claimant: Who asks.
            lease_seconds: How long the claim lives without a renewal.
            reload: Whether the chunk takes the place of chunks of other backfills that lie within it.

        Raises:
            ChunkHeldError: A live claim, this chunk's or one of the same source that overlaps it, stands.
            OverlapError: Another backfill of the source has completed some of it.
            ChunkMissingError: There is no such row any more.
            BackfillPausedError: Somebody has paused the backfill.
            BackfillCancelledError: Somebody has cancelled it.
        """
        keys = {"backfill_id": row.backfill_id, "chunk_id": row.chunk_id}
        with self._locked(f"claim|{row.source_section}"):
            BackfillControls(self._session, self._target).check(row.backfill_id)
            claim = self._claim(row.backfill_id, row.chunk_id, claimant, lease_seconds, reload)
            if claim:
                return claim
            holder = self.holder(**keys)
            if holder is None:
                [coverage] = self.coverage(plan_of(row))
                if coverage.standing is Standing.COVERED and self.cover(row.backfill_id, [coverage]):
                    return None
                # Covered, and a version of its own stands: both have the rows. Only a person can settle that.
                if coverage.standing is not Standing.DUE and self.chunk(**keys).claimable:
                    raise overlapping(plan_of(row), coverage, Overlap.RELOAD if reload else Overlap.REFUSE)
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

    def claim_next(
        self,
        plan: BackfillPlan,
        claimant: Claimant,
        lease_seconds: float,
        since: datetime,
        *,
        reload: bool = False,
    ) -> Claim | None:
        """Take the first chunk that may be had; None when there is none, also since somebody paused it all.

        Args:
            plan: The backfill.
            claimant: Who asks.
            lease_seconds: How long the claim lives without a renewal.
            since: When this run began, by the database's clock: what failed later has had its turn.
            reload: See `claim`.
        """
        with self._locked(f"claim|{plan.source_name}"):
            if BackfillControls(self._session, self._target).of(plan.backfill_id):
                return None
            for chunk_id in self.due(plan, since, _LOOKS, reload=reload):
                # One that was being published when its lease ran out is completed by the time it answers.
                if claim := self._claim(plan.backfill_id, chunk_id, claimant, lease_seconds, reload):
                    return claim
            return None

    def _claim(
        self, backfill_id: str, chunk_id: str, claimant: Claimant, lease_seconds: float, reload: bool
    ) -> Claim | None:
        keys = {"backfill_id": backfill_id, "chunk_id": chunk_id}
        lapsed = len(self._run("lapse", keys))
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
                "reload": reload,
            },
        )
        if not rows:
            return None
        attempt, start, end, size, run_id, load_ids = rows[0]
        loads = [load_ids] if load_ids else []
        if reload:
            # What is completed there since the plan was made may have more resources than this backfill.
            self.check_replaceable(plan_of(self.chunk(**keys)))
            loads += [str(inside) for (inside,) in self._run("inside", keys)]
        claim = Claim(
            backfill_id=backfill_id,
            chunk_id=chunk_id,
            token=token,
            attempt=attempt,
            interval=restored_interval(start, end, size),
            timezone=timezone_of(size),
            run_id=run_id,
            superseded=tuple(",".join(loads).split(",")) if loads else (),
            reload=reload,
            lapsed=lapsed,
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
        text = storable(masked(self._target.redact(error)))
        self._guarded("fail", claim, error=text[:ERROR_LIMIT], will_retry=will_retry)

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

    def restate(self, backfill_id: str, *chunk_ids: str) -> None:
        """``completed -> pending``: the next version of a chunk replaces the rows of this one.

        Raises:
            RestateError: Rows of one cannot be told from others, so nothing was changed.
            ChunkMissingError: There is no such row, or none of them is completed.
        """
        if not self._restate(backfill_id, ",".join(chunk_ids)):
            raise ChunkMissingError(backfill_id, ", ".join(chunk_ids))

    def restate_all(self, backfill_id: str) -> int:
        """Restate the chunks of a backfill that are completed; returns how many these were.

        Raises:
            RestateError: Rows of one cannot be told from others, so nothing was changed.
        """
        return self._restate(backfill_id, None)

    def _restate(self, backfill_id: str, chunk_ids: str | None) -> int:
        keys = {"backfill_id": backfill_id, "chunk_ids": chunk_ids}
        for (unknown,) in self._run("unknown_loads", keys):
            raise RestateError(f"chunk {int(unknown) + 1}", "the ledger does not say which rows it loaded")
        # DuckDB keeps the threads of one process apart no more than a heartbeat's renewal.
        with self._target.dialect.exclusive(self._target):
            return len(self._run("restate", keys))

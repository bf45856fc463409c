"""What a person says of chunks against what the ledger says, and who said so, and why."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from airflow_provider_backfill.engine.statements import MARKS_TABLE, Statements


class Mark(StrEnum):
    """What a chunk is marked as."""

    DONE = "done"
    PENDING = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """One chunk that somebody marked.

    Args:
        mark: As what.
        who: User and host.
        why: One line.
        at: When, by the database's clock.
    """

    mark: Mark
    who: str
    why: str
    at: datetime

    def __str__(self) -> str:
        return f"marked {self.mark} by {self.who}: {self.why}"

    def holds(self, row: ChunkRow) -> bool:
        """Whether the row still is what the mark made of it."""
        status = ChunkStatus.COMPLETED if self.mark is Mark.DONE else ChunkStatus.PENDING
        return row.status is status and row.updated_at is not None and row.updated_at <= self.at


class ChunkMarks(Statements):
    """The table ``_dlt_backfill_marks`` beside the ledger: one row a chunk and mark, never changed."""

    file_name = "marks.sql"

    def done(self, rows: Sequence[ChunkRow], who: str, why: str) -> frozenset[str]:
        """``pending, failed -> completed``: rows that are there already, or are never to be loaded.

        Args:
            rows: Chunks of one backfill.
            who: User and host.
            why: One line.

        Returns:
            Ids of the chunks that were marked; somebody may have claimed or completed others.
        """
        with self._locked(f"claim|{rows[0].source_section}"):
            keys = {"backfill_id": rows[0].backfill_id, "chunk_ids": _joined([row.chunk_id for row in rows])}
            marked = frozenset(str(chunk_id) for (chunk_id,) in self._run("done", keys))
            self._note(rows[0].backfill_id, marked, Mark.DONE, who, why)
            return marked

    def pending(
        self, rows: Sequence[ChunkRow], who: str, why: str, *, forget: bool = False
    ) -> frozenset[str]:
        """``completed -> pending``; what still stands of a version is replaced by the next one.

        Args:
            rows: Chunks of one backfill.
            who: User and host.
            why: One line.
            forget: Their rows are known to be gone: nothing of them will be looked for.

        Returns:
            Ids of the chunks that were marked.

        Raises:
            RestateError: The rows of one are not known, and not to be forgotten; nothing was changed.
        """
        backfill_id = rows[0].backfill_id
        chosen = {row.chunk_id for row in rows}
        with self._locked(f"claim|{rows[0].source_section}"):
            ledger = Ledger(self._session, self._target)
            now = ledger.chunks(backfill_id) if not forget else ()
            marked = frozenset(
                row.chunk_id
                for row in now
                if row.chunk_id in chosen and row.status is ChunkStatus.COMPLETED and not row.covered_by
            )
            if forget:
                keys = {"backfill_id": backfill_id, "chunk_ids": _joined(chosen)}
                marked = frozenset(str(chunk_id) for (chunk_id,) in self._run("forget", keys))
            elif marked:
                ledger.restate(backfill_id, *marked)
            self._note(backfill_id, marked, Mark.PENDING, who, why)
            return marked

    def _note(self, backfill_id: str, chunk_ids: Collection[str], mark: Mark, who: str, why: str) -> None:
        if chunk_ids:
            keys = {"backfill_id": backfill_id, "chunk_ids": _joined(chunk_ids)}
            self._run("note", {**keys, "mark": str(mark), "who": who, "why": why})

    def standing(self, load_ids: Collection[str]) -> tuple[str, int] | None:
        """A table of the dataset that has rows of these loads, and how many; None if there is none."""
        dialect, dataset = self._target.dialect, self._target.dataset_name
        # Tables that do not say which load a row came with cannot be asked.
        column = "_dlt_load_id"
        for table in dialect.tables(self._session, dataset, ""):
            if column not in dialect.table_columns(self._session, dataset, table):
                continue
            [(count,)] = self._session.execute(
                f"SELECT count(*) FROM {self._target.table(table)}"
                f" WHERE strpos(:loads, ',' || {dialect.quote(column)} || ',') > 0",
                {"loads": f",{_joined(load_ids)},"},
            )
            if count:
                return table, int(count)
        return None

    def latest(self) -> dict[tuple[str, str], Marked]:
        """The last mark of each chunk, by backfill and chunk; empty where the table does not exist."""
        if not self._has(MARKS_TABLE):
            return {}
        return {
            (str(backfill_id), str(chunk_id)): Marked(
                mark=Mark(mark), who=str(who), why=str(why), at=at.astimezone(UTC)
            )
            for backfill_id, chunk_id, mark, who, why, at in self._run("all_marks")
        }


def _joined(ids: Collection[str]) -> str:
    return ",".join(sorted(ids))

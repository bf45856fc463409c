"""The ledger's rows as objects, and the states a row may be in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from airflow_provider_backfill.engine.fields import ChunkFields
from airflow_provider_backfill.engine.intervals import Interval, restored_bound
from airflow_provider_backfill.engine.plan import is_whole, timezone_of
from airflow_provider_backfill.engine.selections import Selection


class ChunkStatus(StrEnum):
    """The states of a ledger row; the words are shared with other readers of the table."""

    PENDING = "pending"
    CLAIMED = "claimed"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


#: Somebody holds the chunk, as long as the lease lives.
HELD = frozenset({ChunkStatus.CLAIMED, ChunkStatus.RUNNING})
#: Anybody may claim the chunk.
CLAIMABLE = frozenset({ChunkStatus.PENDING, ChunkStatus.FAILED})

#: Every arrow a row may take. A claim whose lease ran out is first put to ``failed``, then claimed anew.
TRANSITIONS: frozenset[tuple[ChunkStatus, ChunkStatus]] = frozenset(
    {
        (ChunkStatus.PENDING, ChunkStatus.CLAIMED),
        (ChunkStatus.FAILED, ChunkStatus.CLAIMED),
        (ChunkStatus.CLAIMED, ChunkStatus.RUNNING),
        (ChunkStatus.CLAIMED, ChunkStatus.FAILED),
        (ChunkStatus.RUNNING, ChunkStatus.FAILED),
        (ChunkStatus.RUNNING, ChunkStatus.COMPLETED),
        (ChunkStatus.COMPLETED, ChunkStatus.PENDING),
        # Other backfills have loaded the chunk, or a person marks it done.
        (ChunkStatus.PENDING, ChunkStatus.COMPLETED),
        (ChunkStatus.FAILED, ChunkStatus.COMPLETED),
    }
)


_BOUNDS = frozenset({"chunk_from", "chunk_to", "backfill_from", "backfill_to"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """Who asks for a chunk; recorded in the row so that a person can find the holder.

    Args:
        claimed_by: Host and process id, for example ``worker-3:4711``.
        dag_id: Airflow's DAG, if Airflow runs the chunk; likewise the next three.
        dag_run_id: Airflow's DAG run.
        task_id: Airflow's task.
        map_index: Airflow's index of the mapped task.
    """

    claimed_by: str
    dag_id: str | None = None
    dag_run_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to run one chunk, until its lease runs out.

    Args:
        backfill_id: The backfill.
        chunk_id: The chunk, six digits.
        token: Random, fresh with each claim; every later change of the row must name it.
        attempt: Which try this is, from 1.
        interval: What the chunk covers, ``[start, end)``.
        run_id: The chunk's stable run id.
        superseded: Load ids of the version that this attempt will replace; empty for a first version.
        timezone: Canonical zone of the window; default ``UTC``.
        reload: Whether it takes the place of chunks of other backfills within it, whose load ids are among
            ``superseded``; default False.
        lapsed: How many claims stood in its way whose lease had run out; default 0.
    """

    backfill_id: str
    chunk_id: str
    token: str
    attempt: int
    interval: Interval
    run_id: str
    superseded: tuple[str, ...] = ()
    timezone: str = "UTC"
    reload: bool = False
    lapsed: int = 0

    @property
    def number(self) -> int:
        """The chunk's position for people, from 1."""
        return int(self.chunk_id) + 1

    @property
    def fields(self) -> ChunkFields:
        """What the chunk fills in where an argument of the source has a field for it."""
        return ChunkFields(interval=self.interval, run_id=self.run_id, timezone=self.timezone)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who keeps a chunk from being claimed: its own holder, or that of one that overlaps it.

    Args:
        claimed_by: Host and process id; None if unknown.
        lease_expires_at: When the lease ends, by the database's clock; None: the holder keeps none.
        seconds_left: How long it lives, seconds; None likewise.
    """

    claimed_by: str | None
    lease_expires_at: datetime | None
    seconds_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRow:
    """One row of ``_dlt_backfills``, times in UTC. ``lease_left`` is by the database's clock, in seconds.

    Of a window of whole numbers, the four bounds are the times that stand for them; `interval` and `window`
    have the numbers.
    """

    pipeline_name: str
    source_section: str
    resource_name: str | None
    backfill_id: str
    chunk_id: str
    chunk_from: datetime
    chunk_to: datetime
    backfill_from: datetime
    backfill_to: datetime
    chunk_size: str
    status: ChunkStatus
    claimed_by: str | None
    claimed_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None
    records_loaded: int | None
    run_id: str
    attempt: int | None
    claim_token: str | None
    lease_expires_at: datetime | None
    will_retry: bool | None
    error: str | None
    load_ids: str | None
    covered_by: str | None
    dag_id: str | None
    dag_run_id: str | None
    task_id: str | None
    map_index: int | None
    updated_at: datetime | None
    lease_left: float | None

    @classmethod
    def from_row(cls, columns: Sequence[str], row: Sequence[Any]) -> ChunkRow:
        values = {column: _utc(value) for column, value in zip(columns, row, strict=True)}
        values["status"] = ChunkStatus(values["status"])
        if values["lease_left"] is not None:
            values["lease_left"] = float(values["lease_left"])
        return cls(**values)

    @property
    def interval(self) -> Interval:
        return restored_interval(self.chunk_from, self.chunk_to, self.chunk_size)

    @property
    def timezone(self) -> str:
        """Canonical zone of the window."""
        return timezone_of(self.chunk_size)

    @property
    def fields(self) -> ChunkFields:
        """As `Claim.fields`."""
        return ChunkFields(interval=self.interval, run_id=self.run_id, timezone=self.timezone)

    @property
    def window(self) -> Interval:
        """What the whole backfill covers."""
        return restored_interval(self.backfill_from, self.backfill_to, self.chunk_size)

    @property
    def number(self) -> int:
        return int(self.chunk_id) + 1

    @property
    def claimable(self) -> bool:
        """Nobody has it, and it is not done."""
        return self.status in CLAIMABLE

    @property
    def held(self) -> bool:
        """Somebody holds the chunk now: a live lease, or a holder that keeps none."""
        return self.status in HELD and (self.lease_left is None or self.lease_left > 0)

    @property
    def lapsed(self) -> bool:
        """The holder let its lease run out."""
        return self.status in HELD and not self.held

    @property
    def loads(self) -> tuple[str, ...]:
        return tuple(self.load_ids.split(",")) if self.load_ids else ()

    @property
    def known(self) -> bool:
        """The ledger says which rows in the tables are this chunk's, or that there are none."""
        return bool(self.load_ids) or self.records_loaded == 0

    def as_json(self) -> Mapping[str, Any]:
        """The row for machines: times as ISO-8601, without the claim token, which is a right and no news."""
        document: dict[str, Any] = {}
        whole = is_whole(self.chunk_size)
        for name in self.__slots__:
            value = getattr(self, name)
            if whole and name in _BOUNDS:
                value = restored_bound(value, whole=True)
            if name not in {"claim_token", "lease_left"}:
                document[name] = value.isoformat() if isinstance(value, datetime) else value
        return document


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChunk:
    """What a row of the ledger says of its source's history.

    Args:
        backfill_id: The backfill.
        chunk_id: The chunk, six digits.
        interval: What it covers.
        window: What the whole backfill covers.
        chunk_size: The chunk size as the ledger stores it, with the zone.
        selection: Which resources its backfill is about.
        status: Its state.
        lapsed: The holder let its lease run out.
        loaded: The ledger knows what it loaded; of one that is not completed, that is to be replaced.
        covered: It was only found covered by others.
        started: An attempt has begun; not of one that a person recorded as done.
    """

    backfill_id: str
    chunk_id: str
    interval: Interval
    window: Interval
    chunk_size: str
    selection: Selection
    status: ChunkStatus
    lapsed: bool
    loaded: bool
    covered: bool
    started: bool

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> SourceChunk:
        backfill_id, chunk_id, start, end, first, last, size, named, status, *flags, present = row
        lapsed, loaded, covered, started = map(bool, flags)
        return cls(
            backfill_id=str(backfill_id),
            chunk_id=str(chunk_id),
            interval=restored_interval(start, end, size),
            window=restored_interval(first, last, size),
            chunk_size=str(size),
            selection=Selection.of(named, present),
            status=ChunkStatus(status),
            lapsed=lapsed,
            loaded=loaded,
            covered=covered,
            started=started,
        )

    @property
    def done(self) -> bool:
        return self.status is ChunkStatus.COMPLETED

    @property
    def replaced(self) -> bool:
        """It is to be loaded again; the former version stands until then."""
        return self.loaded and not self.done


def restored_interval(start: datetime, end: datetime, chunk_size: str) -> Interval:
    """An interval as the ledger keeps it, beside a chunk size that says of what it is."""
    whole = is_whole(chunk_size)
    return Interval(
        restored_bound(start.astimezone(UTC), whole=whole), restored_bound(end.astimezone(UTC), whole=whole)
    )


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value

"""What the API takes and answers, as OpenAPI describes it. Times are ISO-8601; whole numbers stay such."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from airflow_provider_backfill.engine.controls import ControlState
from airflow_provider_backfill.engine.grid import Group
from airflow_provider_backfill.engine.overview import BackfillState, Condition
from airflow_provider_backfill.engine.peek import PeekState

#: A bound of a window: an instant, or a whole number.
BoundDocument = str | int
ChunkId = Annotated[str, Field(pattern=r"^[0-9]{6,7}$", examples=["000002"])]
Reason = Annotated[str, Field(max_length=500, description="Why, in one line, for others.")]
#: How many chunks one action changes.
MOST_CHUNKS = 10_000


class Document(BaseModel):
    """Something that the API answers."""

    model_config = ConfigDict(frozen=True)


class LedgerDocument(Document):
    """A dataset that a DAG backfills, and whether it can be looked into."""

    ledger: str = Field(description="What addresses know it by.")
    connection: str | None = Field(description="The Airflow connection; null if the DAG's code has it.")
    dataset: str
    into: str | None = Field(description="The dataset that stands in for it.")
    tasks: list[str] = Field(description="The tasks, or groups of tasks, that name it.")
    state: PeekState | Literal["unreadable"]
    reason: str | None = Field(description="Why nothing, or nothing new, was seen.")
    as_of: datetime | None = Field(description="When it was seen.")


class PaceDocument(Document):
    """How fast a backfill goes, by its latest attempts."""

    chunks_per_minute: float
    rows_per_second: float | None
    seconds_left: float = Field(description="How long what is left takes at this pace.")


class FailureDocument(Document):
    """Why a chunk failed."""

    chunk: int = Field(description="Its position, from 1.")
    error: str
    at: datetime | None


class ControlDocument(Document):
    """Who has paused or cancelled a backfill."""

    state: ControlState
    who: str
    why: str | None
    at: datetime


class BackfillDocument(Document):
    """A backfill at a glance."""

    ledger: str
    backfill_id: str
    source: str
    resources: list[str] = Field(description="The resources that were selected; empty for all.")
    start: BoundDocument
    end: BoundDocument
    label: str = Field(description="The window for people, in its time zone.")
    chunk_size: str
    timezone: str
    state: BackfillState
    chunks: int
    done: int = Field(description="How many chunks are completed, by whomever.")
    counts: dict[Condition, int]
    rows: int
    pace: PaceDocument | None
    last_error: FailureDocument | None
    control: ControlDocument | None
    changed_at: datetime | None
    page: str = Field(description="The address of its page.")


class BackfillList(Document):
    """The backfills of a DAG."""

    ledgers: list[LedgerDocument]
    backfills: list[BackfillDocument]
    total: int


class DagDocument(Document):
    """A DAG that backfills."""

    dag_id: str
    ledgers: list[LedgerDocument]
    backfills: list[BackfillDocument] = Field(description="The latest, ten a ledger.")


class DagList(Document):
    """The DAGs that backfill, of those that one may look at."""

    dags: list[DagDocument]
    total: int


class BackfillAnswer(Document):
    """One backfill."""

    ledger: LedgerDocument
    backfill: BackfillDocument


class TaskDocument(Document):
    """The task that held or holds a chunk."""

    dag_id: str
    dag_run_id: str
    task_id: str
    map_index: int | None
    log: str = Field(description="The address of its log in Airflow.")
    run: str = Field(description="The address of its DAG run in Airflow.")


class HolderDocument(Document):
    """Who holds a chunk."""

    name: str | None
    claimed_at: datetime | None
    lease_expires_at: datetime | None
    seconds_left: float | None = Field(description="How long the lease lives; negative when it ran out.")


class ChunkDocument(Document):
    """A chunk."""

    chunk_id: str
    number: int = Field(description="Its position, from 1.")
    start: BoundDocument
    end: BoundDocument
    label: str = Field(description="The interval for people, in the window's time zone.")
    status: str = Field(description="The ledger's word.")
    condition: Condition
    attempt: int = Field(description="How many attempts there were; 0 for none.")
    holder: HolderDocument | None
    rows: int | None
    started_at: datetime | None
    completed_at: datetime | None
    seconds: float | None = Field(description="How long the last attempt took.")
    error: str | None
    will_retry: bool | None
    covered_by: list[str] = Field(description="The backfills that have loaded it instead.")
    run_id: str = Field(description="The chunk's stable id.")
    task: TaskDocument | None


class ChunkList(Document):
    """Some chunks of a backfill, in order."""

    ledger: LedgerDocument
    chunks: list[ChunkDocument]
    total: int


class AttemptDocument(Document):
    """One attempt at a chunk, as the runs ledger has it."""

    started_at: datetime
    completed_at: datetime | None
    status: str
    rows: int | None
    error: str | None


class ChunkAnswer(Document):
    """One chunk, and the attempts at it, the last first."""

    ledger: LedgerDocument
    chunk: ChunkDocument
    attempts: list[AttemptDocument]


class CellDocument(Document):
    """A chunk of the calendar, or consecutive ones."""

    first: int
    last: int
    start: BoundDocument
    end: BoundDocument
    condition: Condition
    done: float = Field(description="Which part of its chunks is completed, from 0 to 1.")
    counts: dict[Condition, int]
    rows: int
    seconds: float = Field(description="How long their attempts took, in all.")


class RowDocument(Document):
    """A line of the calendar."""

    label: str
    indent: int = Field(description="How many cells are missing before the first.")
    cells: list[CellDocument]


class GridDocument(Document):
    """All chunks of a backfill as a calendar."""

    ledger: LedgerDocument
    group: Group
    choices: list[Group]
    rows: list[RowDocument]


class RangeDocument(Document):
    """A part of time, or of whole numbers."""

    start: BoundDocument
    end: BoundDocument


class CoverageDocument(Document):
    """What of a source is loaded, by all of its backfills in the dataset."""

    ledger: LedgerDocument
    source: str
    resources: list[str]
    extent: RangeDocument = Field(description="From where to where its backfills reach.")
    covered: list[RangeDocument]
    covered_total: int
    gaps: list[RangeDocument]
    gaps_total: int


class Body(BaseModel):
    """Something that the API takes; what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid")


class ControlBody(Body):
    """Pausing, cancelling, or letting go on."""

    reason: Reason | None = None


class ReleaseBody(Body):
    """Taking a chunk from its holder."""

    chunk_id: ChunkId
    attempt: int | None = Field(
        None, ge=0, description="The attempt that was shown; whoever has claimed the chunk since keeps it."
    )


class SelectionBody(Body):
    """Some chunks of a backfill: single ones, or those of a range."""

    chunk_ids: list[ChunkId] | None = Field(None, min_length=1, max_length=MOST_CHUNKS)
    start: BoundDocument | None = Field(None, description="Chunks that end after it.")
    end: BoundDocument | None = Field(None, description="Chunks that begin before it.")

    @model_validator(mode="after")
    def _one_of_both(self) -> SelectionBody:
        if (self.chunk_ids is None) == (self.start is None and self.end is None):
            raise ValueError("pass either chunk_ids, or start and end")
        return self


class RestateBody(SelectionBody):
    """Loading completed chunks again."""


class MarkBody(SelectionBody):
    """Telling the ledger what it cannot know."""

    mark: Literal["done", "pending"]
    reason: Annotated[Reason, Field(min_length=1)]


class NewBackfill(Body):
    """A DAG run to be triggered."""

    params: dict[str, Any] = Field(
        default_factory=dict,
        description="What the DAG's trigger form takes.",
        examples=[{"start": "2026-01-01", "end": "2026-01-06", "chunk": "1d"}],
    )
    request: str = Field(
        "", max_length=100, description="Anything; another text asks for another run with the same params."
    )


class LeftDocument(Document):
    """A chunk that an action left as it is."""

    chunk_id: str
    why: str


class ActionAnswer(Document):
    """What an action has changed."""

    message: str
    changed: list[str] = Field(description="The ids of the chunks.")
    left: list[LeftDocument]


class RunAnswer(Document):
    """The DAG run of a new backfill."""

    dag_id: str
    dag_run_id: str
    state: str
    joined: bool = Field(description="The same was asked before, and this is that run.")
    paused: bool = Field(description="The DAG is paused, so that the run waits.")
    run: str = Field(description="Its address in Airflow.")


class ErrorDocument(Document):
    """Why nothing was answered."""

    detail: str

"""The routes of the JSON API."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from airflow_provider_backfill.engine.controls import ControlState
from airflow_provider_backfill.engine.grid import Group
from airflow_provider_backfill.engine.overview import Condition
from airflow_provider_backfill.plugins import actions, reading
from airflow_provider_backfill.plugins.desk import Desk, Found, bound_of
from airflow_provider_backfill.plugins.documents import (
    ActionAnswer,
    BackfillAnswer,
    BackfillList,
    ChunkAnswer,
    ChunkId,
    ChunkList,
    ControlBody,
    CoverageDocument,
    DagList,
    ErrorDocument,
    GridDocument,
    MarkBody,
    NewBackfill,
    ReleaseBody,
    RestateBody,
    RunAnswer,
)
from airflow_provider_backfill.plugins.rights import ActingRoute, ReadingRoute, TriggeringRoute
from airflow_provider_backfill.plugins.trigger import trigger

#: What a database takes as text.
_PRINTABLE = r"^[^\x00-\x1f]+$"
DagId = Annotated[str, Path(max_length=250, pattern=_PRINTABLE, description="A DAG.")]
LedgerKey = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$", description="A ledger, by its key.")]
BackfillId = Annotated[str, Path(pattern=r"^[0-9A-Za-z_-]{1,64}$", description="A backfill.")]
Limit = Annotated[int, Query(ge=1, le=1_000, description="How many at most.")]
Offset = Annotated[int, Query(ge=0, le=10_000_000, description="How many to leave out before.")]
RunId = Annotated[
    str | None, Query(max_length=250, pattern=_PRINTABLE, description="Those of one DAG run alone.")
]
BoundText = Annotated[str | None, Query(max_length=60, description="ISO-8601 with an offset, or a number.")]

_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorDocument, "description": "Something in the request cannot be used."},
    401: {"model": ErrorDocument, "description": "Nobody is logged in."},
    403: {"model": ErrorDocument, "description": "The right to do that with the DAG is missing."},
    404: {"model": ErrorDocument, "description": "There is no such thing, or it is another DAG's."},
    503: {"model": ErrorDocument, "description": "The ledger is busy or cannot be reached."},
}
_CONFLICT: dict[int | str, dict[str, Any]] = {
    409: {"model": ErrorDocument, "description": "The ledger does not allow it."}
}
_BACKFILL = "/dags/{dag_id}/ledgers/{ledger}/backfills/{backfill_id}"

read = APIRouter(prefix="/api/v1", route_class=ReadingRoute, responses={**_ERRORS})
act = APIRouter(prefix="/api/v1", route_class=ActingRoute, responses={**_ERRORS, **_CONFLICT})
start = APIRouter(prefix="/api/v1", route_class=TriggeringRoute, responses={**_ERRORS})


def desk_of(request: Request) -> Desk:
    """The request's way to ledgers."""
    return Desk(request)


DeskDep = Annotated[Desk, Depends(desk_of)]


def found_by(desk: DeskDep, dag_id: DagId, ledger: LedgerKey, backfill_id: BackfillId) -> Found:
    """The backfill that an address names."""
    return desk.find(dag_id, ledger, backfill_id)


FoundDep = Annotated[Found, Depends(found_by)]


@read.get("/dags", tags=["backfills"])
def list_dags(desk: DeskDep, limit: Annotated[int, Query(ge=1, le=100)] = 25, offset: Offset = 0) -> DagList:
    """The DAGs that backfill, of those that you may look at, with the latest backfills of each."""
    return reading.dag_list(desk, limit, offset)


@read.get("/dags/{dag_id}/backfills", tags=["backfills"])
def list_backfills(
    desk: DeskDep,
    dag_id: DagId,
    run_id: RunId = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> BackfillList:
    """The backfills of a DAG, the latest first: those it has run, and those that no DAG has."""
    return reading.backfill_list(desk, dag_id, run_id, limit, offset)


@read.get(_BACKFILL, tags=["backfills"])
def get_backfill(desk: DeskDep, found: FoundDep) -> BackfillAnswer:
    """One backfill at a glance."""
    return reading.backfill_answer(desk, found)


@read.get(_BACKFILL + "/chunks", tags=["chunks"])
def list_chunks(
    desk: DeskDep,
    found: FoundDep,
    condition: Annotated[Condition | None, Query(description="How they stand.")] = None,
    start: BoundText = None,
    end: BoundText = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> ChunkList:
    """The chunks of a backfill, in order, or those that overlap a range."""
    return reading.chunk_list(
        desk,
        found,
        condition=condition,
        start=bound_of(start, "start", found.summary),
        end=bound_of(end, "end", found.summary),
        limit=limit,
        offset=offset,
    )


@read.get(_BACKFILL + "/chunks/{chunk_id}", tags=["chunks"])
def get_chunk(desk: DeskDep, found: FoundDep, chunk_id: ChunkId) -> ChunkAnswer:
    """One chunk, with the attempts at it."""
    return reading.chunk_answer(desk, found, chunk_id)


@read.get(_BACKFILL + "/grid", tags=["chunks"])
def get_grid(
    desk: DeskDep,
    found: FoundDep,
    group: Annotated[Group | None, Query(description="What a cell stands for.")] = None,
) -> GridDocument:
    """All chunks of a backfill as a calendar, thousands of them by hour, day, week, month or year."""
    return reading.grid_answer(desk, found, group)


@read.get(_BACKFILL + "/coverage", tags=["backfills"])
def get_coverage(desk: DeskDep, found: FoundDep, limit: Limit = 100, offset: Offset = 0) -> CoverageDocument:
    """What of the backfill's source is loaded, by all of its backfills in the dataset, and the gaps."""
    return reading.coverage_answer(desk, found, limit, offset)


@start.post(
    "/dags/{dag_id}/backfills", tags=["actions"], status_code=201, responses={200: {"model": RunAnswer}}
)
def create_backfill(desk: DeskDep, dag_id: DagId, body: NewBackfill, response: Response) -> RunAnswer:
    """Trigger a DAG run that backfills. The same body again joins the same run, with status 200."""
    answer = trigger(desk, dag_id, body)
    response.status_code = 200 if answer.joined else 201
    return answer


@act.post(_BACKFILL + "/pause", tags=["actions"])
def pause_backfill(desk: DeskDep, found: FoundDep, body: ControlBody) -> ActionAnswer:
    """Let chunks wait that nobody has claimed yet. Those in flight finish."""
    return actions.control(desk, found, ControlState.PAUSED, body)


@act.post(_BACKFILL + "/cancel", tags=["actions"])
def cancel_backfill(desk: DeskDep, found: FoundDep, body: ControlBody) -> ActionAnswer:
    """Leave chunks that nobody has claimed yet. Those in flight finish."""
    return actions.control(desk, found, ControlState.CANCELLED, body)


@act.post(_BACKFILL + "/resume", tags=["actions"])
def resume_backfill(desk: DeskDep, found: FoundDep, body: ControlBody) -> ActionAnswer:
    """Let a backfill go on that was paused or cancelled."""
    return actions.control(desk, found, None, body)


@act.post(_BACKFILL + "/release", tags=["actions"])
def release_chunk(desk: DeskDep, found: FoundDep, body: ReleaseBody) -> ActionAnswer:
    """Take a chunk from its holder, alive or not; its attempt cannot publish any more."""
    return actions.release(desk, found, body)


@act.post(_BACKFILL + "/restate", tags=["actions"])
def restate_chunks(desk: DeskDep, found: FoundDep, body: RestateBody) -> ActionAnswer:
    """Return completed chunks, so that they are loaded again; their rows stand until then."""
    return actions.restate(desk, found, body)


@act.post(_BACKFILL + "/mark", tags=["actions"])
def mark_chunks(desk: DeskDep, found: FoundDep, body: MarkBody) -> ActionAnswer:
    """Mark chunks as done, which are then not loaded, or as pending, which then are."""
    return actions.mark(desk, found, body)

"""The pages, made on the server; a small script keeps them live."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from airflow_provider_backfill.engine.bounds import Bound
from airflow_provider_backfill.engine.grid import Group, lay_out
from airflow_provider_backfill.engine.overview import (
    BackfillState,
    ChunkAttempt,
    Condition,
    Overview,
    Piece,
    SourceCoverage,
)
from airflow_provider_backfill.engine.records import ChunkRow
from airflow_provider_backfill.plugins import reading
from airflow_provider_backfill.plugins.api import BoundText, DagId, DeskDep, FoundDep, Offset, RunId
from airflow_provider_backfill.plugins.assets import ASSETS, VERSION
from airflow_provider_backfill.plugins.desk import Desk, Found, bound_of, unread
from airflow_provider_backfill.plugins.documents import ChunkAnswer, ChunkId, ChunkList
from airflow_provider_backfill.plugins.drawing import HEIGHT, STRIP, WIDTH, plot, strip
from airflow_provider_backfill.plugins.rights import ReadingRoute, may_edit, page_token
from airflow_provider_backfill.plugins.telling import (
    attempt_document,
    backfill_document,
    chunk_document,
    coverage_document,
    ledger_document,
)
from airflow_provider_backfill.plugins.wording import Links, Wording, environment

#: The header of a request for what is inside the page alone.
FRAGMENT_HEADER = "X-Backfill-Fragment"
#: The header that says after how many seconds to ask again; 0: no more.
NEXT_HEADER = "X-Backfill-Next"
_DAGS, _BACKFILLS, _CHUNKS = 25, 50, 50
_GAPS = 1_000
_FINISHED = frozenset({BackfillState.COMPLETED, BackfillState.CANCELLED})

router = APIRouter(route_class=ReadingRoute, include_in_schema=False, default_response_class=HTMLResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What one look has to bring for the page of a backfill."""

    rows: list[ChunkRow]
    total: int
    one: tuple[ChunkRow, list[ChunkAttempt]] | None


@router.get("/")
def dags_page(desk: DeskDep, offset: Offset = 0) -> Response:
    """Every DAG that backfills."""
    dags = reading.dag_list(desk, _DAGS, offset)
    links = Links(desk.request)
    running = any(each.state is BackfillState.RUNNING for dag in dags.dags for each in dag.backfills)
    return _page(
        desk,
        "dags.html",
        3 if running else 30,
        dags=dags,
        pages=links.pages(offset, _DAGS, len(dags.dags), dags.total),
    )


@router.get("/dags/{dag_id}")
def dag_page(desk: DeskDep, dag_id: DagId, run_id: RunId = None, offset: Offset = 0) -> Response:
    """The backfills of a DAG, or of one of its runs."""
    listed = reading.backfill_list(desk, dag_id, run_id, _BACKFILLS, offset)
    links = Links(desk.request)
    running = any(each.state is BackfillState.RUNNING for each in listed.backfills)
    return _page(
        desk,
        "dag.html",
        3 if running else 15,
        dag_id=dag_id,
        run_id=run_id,
        listed=listed,
        pages=links.pages(offset, _BACKFILLS, len(listed.backfills), listed.total),
    )


@router.get("/dags/{dag_id}/ledgers/{ledger}/backfills/{backfill_id}")
def backfill_page(
    desk: DeskDep,
    found: FoundDep,
    group: Group | None = None,
    condition: Condition | None = None,
    start: BoundText = None,
    end: BoundText = None,
    chunk: Annotated[ChunkId | None, Query()] = None,
    offset: Offset = 0,
) -> Response:
    """One backfill."""
    summary = found.summary
    since, until = bound_of(start, "start", summary), bound_of(end, "end", summary)
    look = desk.read(
        found,
        ("page", condition, since, until, chunk, offset),
        lambda _, overview: _read(found, overview, condition, since, until, chunk, offset),
    )
    seen = look.seen or unread(look)
    # Apart from the choices, so that each of these does not keep all chunks again.
    whole = desk.read(found, ("drawn",), lambda _, overview: _drawn(found, overview))
    pieces, covered = whole.seen or unread(whole)
    ledger = ledger_document(found.ledger, look)
    links = Links(desk.request)
    errors = desk.tells_errors(found.dag_id)

    def document(row: ChunkRow) -> Any:
        return chunk_document(row, look.as_of, desk.addresses, desk.may_read, errors=errors)

    one = seen.one and ChunkAnswer(
        ledger=ledger,
        chunk=document(seen.one[0]),
        attempts=[attempt_document(each, errors=errors) for each in seen.one[1]],
    )
    chunks = ChunkList(ledger=ledger, chunks=[document(row) for row in seen.rows], total=seen.total)
    coverage = covered and coverage_document(covered, summary, ledger, limit=_GAPS, offset=0)
    wording = Wording(summary.timezone, links)
    drawn = [
        (name, plot(values), unit)
        for name, values, unit in (
            ("Duration", [piece.seconds for piece in pieces], wording.seconds),
            ("Rows", [piece.rows for piece in pieces], wording.count),
        )
    ]
    active = summary.state is BackfillState.RUNNING
    return _page(
        desk,
        "backfill.html",
        0 if summary.state in _FINISHED else 2 if active else 10,
        dag_id=found.dag_id,
        it=backfill_document(summary, found.ledger, found.dag_id, desk.addresses, errors=errors),
        ledger=ledger,
        api=desk.addresses.api(found.dag_id, found.ledger.key, summary.backfill_id),
        may_act=may_edit(desk.request, found.dag_id),
        grid=lay_out(pieces, summary.timezone, group),
        chosen=int(chunk) + 1 if chunk else 0,
        one=one,
        chunks=chunks,
        filtered=condition is not None or since is not None or until is not None,
        condition=condition,
        start=start,
        end=end,
        plots=[(name, made, unit) for name, made, unit in drawn if made],
        box={"width": WIDTH, "height": HEIGHT, "strip": STRIP},
        coverage=coverage,
        strip=strip(covered.extent, covered.covered) if covered else [],
        pages=links.pages(offset, _CHUNKS, len(seen.rows), seen.total),
        **wording.words,
    )


def _read(
    found: Found,
    overview: Overview,
    condition: Condition | None,
    start: Bound | None,
    end: Bound | None,
    chunk: str | None,
    offset: int,
) -> _Seen:
    summary = found.summary
    rows, total = overview.page(
        summary.backfill_id, condition=condition, start=start, end=end, limit=_CHUNKS, offset=offset
    )
    one = None
    if chunk is not None:
        chosen, _ = overview.page(summary.backfill_id, limit=1, offset=int(chunk))
        if chosen and chosen[0].chunk_id == chunk:
            one = chosen[0], overview.attempts(summary.backfill_id, chosen[0].run_id)
    return _Seen(rows=rows, total=total, one=one)


def _drawn(found: Found, overview: Overview) -> tuple[list[Piece], SourceCoverage | None]:
    summary = found.summary
    return (
        overview.strip(summary.backfill_id, summary.chunk_size),
        overview.coverage(summary.source, summary.resources, whole=summary.window.whole),
    )


@router.get("/static/{name}")
def asset(name: str) -> Response:
    """A script or a style."""
    if name not in ASSETS:
        return Response(status_code=404)
    content, media_type = ASSETS[name]
    return Response(content, media_type=media_type, headers={"Cache-Control": "private, max-age=86400"})


def _page(desk: Desk, template: str, again: int, **context: Any) -> Response:
    """Render a page, or what is inside it where the script asks for that.

    Args:
        desk: The request's.
        template: The template.
        again: After how many seconds to ask again; 0: no more.
        context: What it shows.
    """
    request = desk.request
    fragment = FRAGMENT_HEADER in request.headers
    text = (
        environment()
        .get_template(template)
        .render(
            layout="fragment.html" if fragment else "base.html",
            at=desk.addresses,
            version=VERSION,
            token=page_token(desk.user),
            next=again,
            **context,
        )
    )
    headers = {NEXT_HEADER: str(again)}
    if fragment:
        tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:20]}"'
        headers["ETag"] = tag
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
    return HTMLResponse(text, headers=headers)


def error_page(request: Request, status: int, detail: str, login: str | None) -> Response:
    """What went wrong, for people."""
    text = (
        environment()
        .get_template("error.html")
        .render(
            layout="base.html",
            at=Desk(request).addresses,
            version=VERSION,
            token="",
            next=5 if status == 503 else 0,
            status=status,
            detail=detail.rstrip("."),
            login=login,
        )
    )
    return HTMLResponse(text, status_code=status)

"""The answers of the API that only look, as documents; the pages show the same."""

from __future__ import annotations

from fastapi import HTTPException

from airflow_provider_backfill.engine.bounds import Bound
from airflow_provider_backfill.engine.grid import Group, lay_out
from airflow_provider_backfill.engine.overview import ChunkAttempt, Condition, Overview
from airflow_provider_backfill.engine.records import ChunkRow
from airflow_provider_backfill.plugins.desk import Desk, Found, unread
from airflow_provider_backfill.plugins.documents import (
    BackfillAnswer,
    BackfillDocument,
    BackfillList,
    ChunkAnswer,
    ChunkList,
    CoverageDocument,
    DagDocument,
    DagList,
    GridDocument,
)
from airflow_provider_backfill.plugins.telling import (
    attempt_document,
    backfill_document,
    chunk_document,
    coverage_document,
    grid_document,
    ledger_document,
)

#: How many backfills of a ledger the list of DAGs shows.
_FEW = 10


def dag_list(desk: Desk, limit: int, offset: int) -> DagList:
    """The DAGs that backfill."""
    dags = desk.dags()
    some = dict(list(dags.items())[offset : offset + limit])
    # A ledger that several DAGs name is looked into once.
    ledgers = {ledger.key: ledger for named in some.values() for ledger in named}
    looks = dict(zip(ledgers, desk.shelves(list(ledgers.values())), strict=True))
    documents = []
    for dag_id, named in some.items():
        backfills: list[BackfillDocument] = []
        errors = desk.tells_errors(dag_id)
        for ledger in named:
            look = looks[ledger.key]
            found = look.seen.of(dag_id) if look and look.seen else []
            backfills += [
                backfill_document(each, ledger, dag_id, desk.addresses, errors=errors)
                for each in found[:_FEW]
            ]
        shown = [ledger_document(ledger, looks[ledger.key]) for ledger in named]
        documents.append(DagDocument(dag_id=dag_id, ledgers=shown, backfills=backfills))
    return DagList(dags=documents, total=len(dags))


def backfill_list(desk: Desk, dag_id: str, run_id: str | None, limit: int, offset: int) -> BackfillList:
    """The backfills of a DAG, or of one of its runs."""
    ledgers = desk.ledgers(dag_id)
    looks = desk.shelves(ledgers)
    errors = desk.tells_errors(dag_id)
    found: list[BackfillDocument] = []
    for ledger, look in zip(ledgers, looks, strict=True):
        if look is None or look.seen is None:
            continue
        summaries = look.seen.of(dag_id)
        if run_id is not None:
            # Airflow 3.1 leaves the + of a run's id as it is in an address, where it means a space.
            mine = desk.in_run(ledger, dag_id, run_id) or desk.in_run(
                ledger, dag_id, run_id.replace(" ", "+")
            )
            summaries = [each for each in summaries if each.backfill_id in mine]
        found += [
            backfill_document(each, ledger, dag_id, desk.addresses, errors=errors) for each in summaries
        ]
    return BackfillList(
        ledgers=[ledger_document(ledger, look) for ledger, look in zip(ledgers, looks, strict=True)],
        backfills=found[offset : offset + limit],
        total=len(found),
    )


def backfill_answer(desk: Desk, found: Found) -> BackfillAnswer:
    """One backfill."""
    return BackfillAnswer(
        ledger=ledger_document(found.ledger, found.look),
        backfill=backfill_document(
            found.summary,
            found.ledger,
            found.dag_id,
            desk.addresses,
            errors=desk.tells_errors(found.dag_id),
        ),
    )


def chunk_list(
    desk: Desk,
    found: Found,
    *,
    condition: Condition | None,
    start: Bound | None,
    end: Bound | None,
    limit: int,
    offset: int,
) -> ChunkList:
    """Some chunks of a backfill."""
    backfill_id = found.summary.backfill_id
    look = desk.read(
        found,
        ("chunks", condition, start, end, limit, offset),
        lambda _, overview: overview.page(
            backfill_id, condition=condition, start=start, end=end, limit=limit, offset=offset
        ),
    )
    rows, total = look.seen or unread(look)
    errors = desk.tells_errors(found.dag_id)
    return ChunkList(
        ledger=ledger_document(found.ledger, look),
        chunks=[
            chunk_document(row, look.as_of, desk.addresses, desk.may_read, errors=errors) for row in rows
        ],
        total=total,
    )


def chunk_answer(desk: Desk, found: Found, chunk_id: str) -> ChunkAnswer:
    """One chunk with its attempts.

    Raises:
        HTTPException: 404: there is none.
    """
    backfill_id = found.summary.backfill_id
    number = int(chunk_id)

    def ask(_: object, overview: Overview) -> tuple[ChunkRow | None, list[ChunkAttempt]]:
        rows, _total = overview.page(backfill_id, limit=1, offset=number)
        if not rows or rows[0].chunk_id != chunk_id:
            return None, []
        return rows[0], overview.attempts(backfill_id, rows[0].run_id)

    look = desk.read(found, ("chunk", chunk_id), ask)
    row, attempts = look.seen or unread(look)
    if row is None:
        raise HTTPException(404, "the backfill has no such chunk")
    errors = desk.tells_errors(found.dag_id)
    return ChunkAnswer(
        ledger=ledger_document(found.ledger, look),
        chunk=chunk_document(row, look.as_of, desk.addresses, desk.may_read, errors=errors),
        attempts=[attempt_document(attempt, errors=errors) for attempt in attempts],
    )


def grid_answer(desk: Desk, found: Found, group: Group | None) -> GridDocument:
    """All chunks of a backfill as a calendar."""
    summary = found.summary
    look = desk.read(
        found, ("strip",), lambda _, overview: overview.strip(summary.backfill_id, summary.chunk_size)
    )
    pieces = look.seen or unread(look)
    return grid_document(lay_out(pieces, summary.timezone, group), ledger_document(found.ledger, look))


def coverage_answer(desk: Desk, found: Found, limit: int, offset: int) -> CoverageDocument:
    """What of a backfill's source is loaded."""
    summary = found.summary
    look = desk.read(
        found,
        ("coverage",),
        lambda _, overview: overview.coverage(summary.source, summary.resources, whole=summary.window.whole),
    )
    return coverage_document(
        look.seen or unread(look),
        summary,
        ledger_document(found.ledger, look),
        limit=limit,
        offset=offset,
    )

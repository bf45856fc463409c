"""What people do with a backfill here: each is written to Airflow's audit log first, then done at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fastapi import HTTPException

from airflow_provider_backfill._text import line, masked
from airflow_provider_backfill.engine.controls import BackfillControls, ControlState
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.marks import ChunkMarks, Mark
from airflow_provider_backfill.engine.peek import turn
from airflow_provider_backfill.engine.records import CLAIMABLE, HELD, ChunkRow, ChunkStatus
from airflow_provider_backfill.exceptions import BackfillError
from airflow_provider_backfill.plugins.audit import record
from airflow_provider_backfill.plugins.desk import Desk, Found, bound_of
from airflow_provider_backfill.plugins.documents import (
    ActionAnswer,
    ControlBody,
    LeftDocument,
    MarkBody,
    ReleaseBody,
    RestateBody,
    SelectionBody,
)
from airflow_provider_backfill.plugins.looks import target_of
from airflow_provider_backfill.plugins.telling import condition_of

log = logging.getLogger(__name__)

#: How long an action may wait for a database, seconds. Somebody sits in front of it.
PATIENCE_SECONDS = 5.0
#: Names of more chunks than these do not go into the audit log.
_MOST_NAMED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A ledger that is open for writing."""

    session: Session
    target: Target
    ledger: Ledger
    rows: Sequence[ChunkRow]


def control(desk: Desk, found: Found, state: ControlState | None, body: ControlBody) -> ActionAnswer:
    """Pause, cancel, or let go on (None)."""
    verb = {ControlState.PAUSED: "pause", ControlState.CANCELLED: "cancel", None: "resume"}[state]
    why = _one_line(body.reason)
    _write_down(desk, found, verb, reason=why)
    backfill_id, source = found.summary.backfill_id, found.summary.source
    with _opened(desk, found) as place:
        controls = BackfillControls(place.session, place.target)
        if state is None:
            before = controls.of(backfill_id)
            controls.lift(source, backfill_id)
            message = f"it goes on; it was {before}" if before else "it is neither paused nor cancelled"
        else:
            controls.put(source, backfill_id, state, _who(desk), why)
            flying = sum(row.held for row in place.rows)
            message = f"{state}; {_chunks(flying)} in flight {'finishes' if flying == 1 else 'finish'}"
    return ActionAnswer(message=message, changed=[], left=[])


def release(desk: Desk, found: Found, body: ReleaseBody) -> ActionAnswer:
    """Take a chunk from its holder."""
    _write_down(desk, found, "release", chunk_id=body.chunk_id, attempt=body.attempt)
    with _opened(desk, found) as place:
        rows = [row for row in place.rows if row.chunk_id == body.chunk_id]
        if not rows:
            raise HTTPException(404, "the backfill has no such chunk")
        [row] = rows
        if row.status not in HELD:
            raise HTTPException(409, f"nobody holds chunk {row.number}: it is {row.status}")
        if body.attempt is not None and body.attempt != (row.attempt or 0):
            raise HTTPException(409, f"chunk {row.number} has been claimed anew since it was shown")
        if not place.ledger.release(row, f"released by {_who(desk)}"):
            raise HTTPException(409, f"chunk {row.number} has changed since it was shown")
    return ActionAnswer(
        message=f"chunk {row.number} is released, and can be claimed", changed=[row.chunk_id], left=[]
    )


def restate(desk: Desk, found: Found, body: RestateBody) -> ActionAnswer:
    """Return completed chunks, so that they are loaded again."""
    _write_down(desk, found, "restate", **_written(body))
    with _opened(desk, found) as place:
        fit, left = _sorted_out(_chosen(found, body, place.rows), _not_restatable)
        if fit:
            place.ledger.restate(found.summary.backfill_id, *(row.chunk_id for row in fit))
    return _answer("to be loaded again by the next run or clear", fit, left, {row.chunk_id for row in fit})


def mark(desk: Desk, found: Found, body: MarkBody) -> ActionAnswer:
    """Tell the ledger that chunks are done, or that they are not."""
    word, why = Mark(body.mark), _one_line(body.reason)
    if why is None:
        raise HTTPException(400, "reason is empty; say why, for others")
    _write_down(desk, found, f"mark_{word}", reason=why, **_written(body))
    with _opened(desk, found) as place:
        refused = _not_done if word is Mark.DONE else _not_restatable
        fit, left = _sorted_out(_chosen(found, body, place.rows), refused)
        changed: Collection[str] = frozenset()
        if fit:
            marks = ChunkMarks(place.session, place.target)
            place.ledger.prepare(marks)
            change = marks.done if word is Mark.DONE else marks.pending
            changed = change(fit, _who(desk), why)
    return _answer(f"marked as {word}", fit, left, changed)


@contextmanager
def _opened(desk: Desk, found: Found) -> Iterator[_Open]:
    target = target_of(found.ledger)
    try:
        with turn(target, PATIENCE_SECONDS), target.connect(PATIENCE_SECONDS) as session:
            session.patience = PATIENCE_SECONDS
            ledger = Ledger(session, target)
            # The ledger may be another tool's.
            ledger.prepare()
            rows = ledger.chunks(found.summary.backfill_id)
            yield _Open(session=session, target=target, ledger=ledger, rows=rows)
    except (BackfillError, HTTPException):
        raise
    except Exception as error:
        if target.dialect.is_timeout(error):
            reason = f"somebody kept it locked for {PATIENCE_SECONDS:g} s; nothing was changed, try again"
            raise HTTPException(503, f"the ledger is busy: {reason}") from None
        log.exception("an action on a ledger failed")
        reason = line(masked(target.redact(str(error).partition("\n")[0])))
        raise HTTPException(409, f"the ledger refuses it: {reason}") from None
    finally:
        desk.looks.forget(found.ledger)


def _write_down(desk: Desk, found: Found, verb: str, **details: object) -> None:
    record(
        desk.user,
        f"backfill.{verb}",
        found.dag_id,
        connection=found.ledger.conn_id,
        dataset=found.ledger.into or found.ledger.dataset_name,
        source=found.summary.source,
        backfill_id=found.summary.backfill_id,
        **details,
    )


def _written(body: SelectionBody) -> dict[str, object]:
    ids = body.chunk_ids
    named = ids if ids is None or len(ids) <= _MOST_NAMED else [*ids[:_MOST_NAMED], f"and {len(ids)} in all"]
    return {"chunk_ids": named, "start": body.start, "end": body.end}


def _who(desk: Desk) -> str:
    return f"{desk.user.get_name()} in Airflow"


def _one_line(text: str | None) -> str | None:
    return " ".join((text or "").split()) or None


def _chunks(count: int) -> str:
    return f"{count} chunk{'s' * (count != 1)}"


def _chosen(found: Found, body: SelectionBody, rows: Sequence[ChunkRow]) -> list[ChunkRow]:
    """The chunks that a body means.

    Raises:
        HTTPException: 404: there are none, or not all of those that are named.
    """
    if body.chunk_ids is not None:
        wanted = set(body.chunk_ids)
        chosen = [row for row in rows if row.chunk_id in wanted]
        missing = wanted - {row.chunk_id for row in chosen}
        if missing:
            raise HTTPException(404, f"the backfill has no chunk {min(missing)}")
        return chosen
    start, end = (bound_of(getattr(body, name), name, found.summary) for name in ("start", "end"))
    chosen = [
        row
        for row in rows
        if (start is None or row.interval.end > start) and (end is None or row.interval.start < end)  # type: ignore[operator]
    ]
    if not chosen:
        raise HTTPException(404, "the backfill has no chunk there")
    return chosen


def _sorted_out(
    rows: Sequence[ChunkRow], refused: Callable[[ChunkRow], str | None]
) -> tuple[list[ChunkRow], list[LeftDocument]]:
    reasons = [(row, refused(row)) for row in rows]
    return (
        [row for row, why in reasons if why is None],
        [LeftDocument(chunk_id=row.chunk_id, why=why) for row, why in reasons if why is not None],
    )


def _not_restatable(row: ChunkRow) -> str | None:
    if row.status is not ChunkStatus.COMPLETED:
        return f"it is {condition_of(row)}"
    if row.covered_by:
        return f"backfill {row.covered_by} has loaded it; return it there"
    if not row.known:
        return "the ledger does not say which rows it loaded; see chunked-backfill mark --forget"
    return None


def _not_done(row: ChunkRow) -> str | None:
    if row.status in CLAIMABLE:
        return None
    condition = condition_of(row)
    return f"it is {condition}; release it first" if row.status in HELD else f"it is {condition}"


def _answer(
    done: str, fit: Sequence[ChunkRow], left: list[LeftDocument], changed: Collection[str]
) -> ActionAnswer:
    late = [row.chunk_id for row in fit if row.chunk_id not in changed]
    left = [*left, *(LeftDocument(chunk_id=chunk_id, why="it has changed meanwhile") for chunk_id in late)]
    message = f"{_chunks(len(changed))} {done}"
    if left:
        message += f"; {len(left)} left as {'it is' if len(left) == 1 else 'they are'}"
    return ActionAnswer(message=message, changed=sorted(changed), left=left)

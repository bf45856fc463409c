"""What must hold once a scenario is over, compared with what plain Python works out from the rows."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow_provider_backfill.engine.destinations.base import Session
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from tests.chaos import source
from tests.chaos.warehouses import Site, read_bookmark

WAIT = 30.0
_D = source.DATASET
_ITEMS, _TAGS = f"{source.TABLE}__items", f"{source.TABLE}__items__tags"

#: Business values of each table; nested rows are told apart by the row they hang under.
_CONTENTS = {
    source.TABLE: f'SELECT id, "at", kind, amount FROM {_D}.{source.TABLE}',
    _ITEMS: (
        f"SELECT p.id, i.sku, i.qty FROM {_D}.{_ITEMS} i"
        f" JOIN {_D}.{source.TABLE} p ON i._dlt_parent_id = p._dlt_id"
    ),
    _TAGS: (
        f"SELECT p.id, i.sku, t.value FROM {_D}.{_TAGS} t"
        f" JOIN {_D}.{_ITEMS} i ON t._dlt_parent_id = i._dlt_id"
        f" JOIN {_D}.{source.TABLE} p ON i._dlt_parent_id = p._dlt_id"
    ),
}


@dataclass(slots=True)
class Sight:
    """A look at the dataset at one moment.

    Args:
        rows: The ledger.
        halves: Chunks of which a consumer sees some rows and not all.
        stages: Datasets of attempts.
        directories: Working directories of attempts.
    """

    rows: list[ChunkRow]
    halves: list[str]
    stages: list[str]
    directories: list[str]

    def chunk(self, chunk_id: str) -> ChunkRow | None:
        return next((row for row in self.rows if row.chunk_id == chunk_id), None)


@dataclass(slots=True)
class Verdict:
    """What is wrong at the end; empty lists and zeros if nothing is.

    Args:
        lost: Rows that should be there and are not.
        extra: Rows that should not be there, or not so often.
        leftovers: Stages, working directories, locks and sessions.
        faults: Everything that is wrong, in words.
    """

    lost: int = 0
    extra: int = 0
    leftovers: int = 0
    faults: list[str] = field(default_factory=list)


def look(site: Site, work: Path) -> Sight:
    """See what a consumer and an operator would."""
    stages: list[str] = []
    rows: list[ChunkRow] = []
    halves: list[str] = []
    if site.target.exists():
        with site.target.connect(WAIT) as session:
            stages = site.target.dialect.schemas(session, "backfill_stage_")
            ledger = Ledger(session, site.target)
            if ledger.exists():
                rows = ledger.dataset_chunks()
            halves = _halves(session, site)
    return Sight(rows=rows, halves=halves, stages=stages, directories=directories(work))


def directories(work: Path) -> list[str]:
    return sorted(os.listdir(work)) if work.exists() else []


def _halves(session: Session, site: Site) -> list[str]:
    if not site.target.dialect.table_columns(session, _D, source.TABLE):
        return []
    # One statement, so that it sees one moment.
    nested = (
        f'SELECT p.id, p."at", 1 + (SELECT count(*) FROM {_D}.{_ITEMS} i WHERE i._dlt_parent_id = p._dlt_id)'
        f" + (SELECT count(*) FROM {_D}.{_ITEMS} i JOIN {_D}.{_TAGS} t ON t._dlt_parent_id = i._dlt_id"
        f" WHERE i._dlt_parent_id = p._dlt_id) AS rows FROM {_D}.{source.TABLE} p"
    )
    present = all(site.target.dialect.table_columns(session, _D, name) for name in (_ITEMS, _TAGS))
    statement = nested if present else f'SELECT id, "at", 1 FROM {_D}.{source.TABLE}'
    seen: Counter[int] = Counter()
    for _, at, rows in session.execute(statement):
        number = int((at - source.START) / source.CHUNK)
        if 0 <= number < source.CHUNKS and at >= source.START:
            seen[number] += int(rows)
    return [
        f"chunk {number + 1}: {rows} of {source.records(number)} rows"
        for number, rows in sorted(seen.items())
        if rows != source.records(number)
    ]


def judge(site: Site, work: Path, disposition: str, dataset: str) -> Verdict:
    """Check everything that must hold when the window is covered."""
    verdict = Verdict()
    with site.target.connect(WAIT) as session:
        _judge_rows(verdict, session, disposition, dataset)
        _judge_ids(verdict, session)
        rows = Ledger(session, site.target).dataset_chunks()
        _judge_ledger(verdict, rows)
        _judge_loads(verdict, session, site, rows)
        stages = site.target.dialect.schemas(session, "backfill_stage_")
        left = [f"stage {name}" for name in stages] + [f"directory {name}" for name in directories(work)]
        if site.target.dialect.name == "postgres":
            left += _held_on_server(session)
        verdict.leftovers = len(left)
        verdict.faults += [f"left behind: {name}" for name in left]
        if dataset == "forward" and read_bookmark(session.execute) != site.before.bookmark:
            verdict.faults.append("the forward pipeline's bookmark changed")
    return verdict


def _judge_rows(verdict: Verdict, session: Session, disposition: str, dataset: str) -> None:
    for table, wanted in source.expected(disposition, dataset).items():
        found: Counter[tuple[Any, ...]] = Counter()
        for row in session.execute(_CONTENTS[table]):
            found[tuple(_plain(value) for value in row)] += 1
        [(count,)] = session.execute(f"SELECT count(*) FROM {_D}.{table}")
        lost, extra = wanted - found, found - wanted
        verdict.lost += lost.total()
        verdict.extra += extra.total()
        for word, rows in (("lost", lost), ("too many", extra)):
            if rows:
                verdict.faults.append(f"{table}: {rows.total()} rows {word}, e.g. {next(iter(rows))}")
        orphans = int(count) - found.total()
        if orphans:
            verdict.extra += abs(orphans)
            verdict.faults.append(f"{table}: {orphans} rows without their parents, or with several")


def _judge_ids(verdict: Verdict, session: Session) -> None:
    for table in _CONTENTS:
        [(twice,)] = session.execute(f"SELECT count(*) - count(DISTINCT _dlt_id) FROM {_D}.{table}")
        if twice:
            verdict.faults.append(f"{table}: {twice} values of _dlt_id stand twice")


def _judge_ledger(verdict: Verdict, rows: list[ChunkRow]) -> None:
    ids = [row.chunk_id for row in rows]
    if ids != [f"{number:06d}" for number in range(source.CHUNKS)]:
        verdict.faults.append(f"the ledger has the chunks {ids}")
        return
    for number, row in enumerate(rows):
        if row.status is not ChunkStatus.COMPLETED:
            verdict.faults.append(f"chunk {row.number} is {row.status}: {row.error}")
        elif row.records_loaded != source.records(number):
            verdict.faults.append(
                f"chunk {row.number} says {row.records_loaded} rows, not {source.records(number)}"
            )


def _judge_loads(verdict: Verdict, session: Session, site: Site, rows: list[ChunkRow]) -> None:
    loads = [str(load_id) for (load_id,) in session.execute(f"SELECT load_id FROM {_D}._dlt_loads")]
    in_rows = session.execute(f"SELECT DISTINCT _dlt_load_id FROM {_D}.{source.TABLE}")
    used = {str(load_id) for (load_id,) in in_rows}
    ours = [load_id for row in rows for load_id in row.loads]
    if sorted(loads) != sorted([*ours, *site.before.load_ids]):
        verdict.faults.append(f"_dlt_loads has {sorted(loads)}, the ledger {sorted(ours)}")
    if used != set(loads):
        verdict.faults.append(f"load ids of the rows are {sorted(used)}, _dlt_loads has {sorted(loads)}")


def _held_on_server(session: Session) -> list[str]:
    locks = session.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    sessions = session.execute(
        "SELECT state, query FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    return [f"{count} advisory locks" for (count,) in locks if count] + [
        f"a session, {state}: {query}" for state, query in sessions
    ]


def _plain(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value

"""``chunked-backfill mend`` on a ledger in which another tool has planned twice at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_backfill.engine.destinations import Target
from tests.support.commands import BACKFILL_ID, Site
from tests.support.ledgers import foreign_row, foreign_table, plan
from tests.support.pages import DOCS, blocks

WHAT = f"Backfill {BACKFILL_ID}, web_events [2026-01-01T00:00:00+00:00 → 2026-01-06T00:00:00+00:00) by 1d: "


@pytest.fixture
def site(tmp_path: Path, target: Target) -> Site:
    return Site(home=tmp_path / "home", target=target)


@pytest.fixture
def twice(site: Site) -> Site:
    """The first two chunks of five stand twice; nobody took the first, and two workers took the second."""
    backfill = plan()
    rows = [foreign_row(backfill, chunk, "pending") for chunk in (0, 0, 2, 3, 4)]
    taken = [foreign_row(backfill, 1, "failed", claimed_by=worker) for worker in ("vm:1", "vm:2")]
    foreign_table(site.target, [*rows, *taken])
    return site


def mend(site: Site, *more: str, code: int = 0):
    return site.invoke("mend", *site.place, *more, code=code)


def test_it_shows_the_rows_and_leaves_one_a_chunk(twice: Site) -> None:
    refused = twice.quickly("run", code=2)
    [error] = refused.err
    assert error == (
        f"error: the ledger has chunk 000000 of backfill {BACKFILL_ID} more than once, so that it could be "
        "loaded twice; see such chunks, and leave one row of each, with chunked-backfill mend "
        "(see docs/refusals.md#duplicatechunkserror)"
    )
    assert twice.quickly("plan", code=2).err == refused.err
    done = mend(twice, "--yes")
    assert done.out == [
        f"{WHAT}2 failed, 5 pending (5 chunks)",
        "chunk  interval                 rows",
        "1/5    2026-01-01 → 2026-01-02  pending, pending",
        "2/5    2026-01-02 → 2026-01-03  failed by vm:1, failed by vm:2",
        "dropped 2 rows; each chunk has one now",
    ]
    assert done.err == [
        "warning: chunk 2/5 was taken by vm:1 and vm:2: look whether its rows stand twice in your tables"
    ]
    assert twice.statuses() == ["pending", "failed", "pending", "pending", "pending"]
    assert mend(twice).out == ["no chunk stands twice"]
    assert twice.quickly("run").out[-1].startswith(f"Backfill {BACKFILL_ID}: 5 completed, 0 skipped")
    assert [number for number, _ in twice.loaded()] == [1, 2, 3, 4, 5]


def test_nothing_is_dropped_unasked(twice: Site) -> None:
    done = mend(twice, code=2)
    assert done.err[-1].startswith("error: Nothing was dropped: nobody can be asked")
    assert len(twice.rows()) == 7


def test_the_statement_of_the_docs_does_the_same(twice: Site) -> None:
    [statement] = blocks(DOCS / "howto" / "dlt-ops.md", "sql")
    with twice.target.connect(5) as session:
        session.execute(statement.replace("ctid", twice.target.dialect.row_id[0]))
    assert twice.statuses() == ["pending", "failed", "pending", "pending", "pending"]


def test_where_there_is_no_ledger_there_is_nothing_to_mend(site: Site) -> None:
    assert mend(site, code=2).err[0].startswith("error: There is nothing to mend: ")
    site.quickly("run")
    assert mend(site).out == ["no chunk stands twice"]

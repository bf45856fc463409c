"""``chunked-backfill restate`` and ``mark`` on real databases: what is loaded again, and what is left."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from airflow_provider_backfill.cli.asking import person
from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.marks import ChunkMarks
from tests.support.commands import BACKFILL_ID, SOURCE, Done, Site
from tests.support.ledgers import foreign_row, foreign_table, opened, plan, seeded, sql, take

FIVE = [(day, day * 10) for day in range(1, 6)]
ID = ("--backfill-id", BACKFILL_ID)
WHY = ("--reason", "a bug in the source")
#: A run loads what the file says, times the day.
FACTOR = """
from datetime import UTC, datetime
from pathlib import Path

import dlt


@dlt.resource
def page_views(at=dlt.sources.incremental("at", initial_value=datetime(2020, 1, 1, tzinfo=UTC))):
    factor = int(Path(__file__).with_suffix(".factor").read_text())
    for day in range(1, 7):
        yield {"id": day, "at": datetime(2026, 1, day, 12, tzinfo=UTC), "order": day * factor}
"""


@pytest.fixture
def site(tmp_path: Path, target: Target) -> Site:
    site = Site(home=tmp_path / "home", target=target)
    (site.home / "sources" / "web_events.py").write_text(FACTOR)
    factor(site, 10)
    return site


@pytest.fixture
def loaded(site: Site) -> Site:
    """The window is covered, and the source says something else by now."""
    site.quickly("run")
    factor(site, 100)
    return site


def factor(site: Site, number: int) -> None:
    (site.home / "sources" / "web_events.factor").write_text(str(number))


def mark(site: Site, *arguments: str, code: int = 0) -> Done:
    return site.invoke("mark", *site.place, *ID, *WHY, "--yes", *arguments, code=code)


def marked(site: Site) -> dict[str, str]:
    with site.target.connect(10) as session:
        latest = ChunkMarks(session, site.target).latest()
    return {chunk_id: str(each) for (_, chunk_id), each in latest.items()}


# Restating


def test_completed_chunks_are_returned_and_their_rows_stand_until_the_next_run(loaded):
    done = loaded.quickly("restate", "--only-from", "2026-01-02", "--only-to", "2026-01-04", "--yes")
    assert [line.split()[0] for line in done.out] == ["chunk", "2/5", "3/5", "to"]
    assert done.out[-1].startswith("to be loaded again: 2/5, 3/5; ")
    assert loaded.statuses() == ["completed", "pending", "pending", "completed", "completed"]
    assert loaded.loaded() == FIVE
    loaded.quickly("run")
    assert loaded.loaded() == [(1, 10), (2, 200), (3, 300), (4, 40), (5, 50)]


@pytest.mark.parametrize(
    ("choice", "days"),
    [
        (("--only", "3"), {3}),
        (("--only", "3/5", "--only", "000004"), {3, 5}),
        (("--only-from", "2026-01-04T23:00:00Z"), {4, 5}),
        (("--only-to", "2026-01-02T00:00:00+00:00"), {1}),
        ((), {1, 2, 3, 4, 5}),
    ],
)
def test_run_goes_on_with_the_chosen_chunks(loaded, choice, days):
    done = loaded.quickly("restate", *choice, "--yes", "--run")
    assert done.out[-1] == (
        f"Backfill {BACKFILL_ID}: {len(days)} completed, {5 - len(days)} skipped, "
        "0 claimed elsewhere (5 chunks)"
    )
    assert loaded.loaded() == [(day, day * (100 if day in days else 10)) for day in range(1, 6)]


def test_what_is_not_completed_is_left(site):
    seeded(site.target, plan())
    done = site.quickly("restate", "--only", "1")
    assert done.out == ["none of 1 chunk is to be returned"]
    assert site.statuses() == ["pending"] * 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "6"), f"error: Backfill {BACKFILL_ID} has no chunk 6; it has 5 chunks; "),
        (("--only", "3/6"), f"error: Backfill {BACKFILL_ID} has no chunk 3/6; "),
        (
            ("--only", "3", "--only-to", "2026-01-04"),
            "error: Pass either --only, or --only-from and --only-to; ",
        ),
        (
            ("--only-from", "2026-02-01"),
            f"error: Backfill {BACKFILL_ID} has no chunk there; its window is [2026-",
        ),
        (
            ("--only-from", "2026-01-02T00:00:00"),
            "error: only-from '2026-01-02T00:00:00' is timezone-naive; ",
        ),
        (("--only-from", "7"), "error: only-from '7' does not fit the window, which is of times"),
        ((), "error: Nothing was restated: nobody can be asked where stdin is no terminal, pass --yes; "),
    ],
)
def test_what_cannot_be_meant_changes_nothing(loaded, arguments, message):
    assert loaded.quickly("restate", *arguments, code=2).err[0].startswith(message)
    assert loaded.statuses() == ["completed"] * 5


def test_rows_whose_load_nobody_noted_are_refused(loaded):
    sql(loaded.target, "UPDATE {ledger} SET load_ids = NULL WHERE chunk_id = '000001'")
    [error] = loaded.quickly("restate", "--yes", code=2).err
    assert error.startswith(
        "error: chunk 2 cannot be loaded again: the ledger does not say which rows it loaded"
    )
    assert loaded.statuses() == ["completed"] * 5


def test_a_backfill_that_nobody_has_run_is_not_restated(site):
    [error] = site.quickly("restate", "--yes", code=2).err
    assert error.startswith(f"error: The ledger has no backfill '{BACKFILL_ID}'; ")
    assert not site.rows()


# Marking as done


def test_chunks_that_are_marked_as_done_are_not_loaded(site):
    seeded(site.target, plan())
    with opened(site.target) as ledger:
        ledger.fail(take(ledger, plan(), 1), "the API is down")
    done = mark(site, "--done", "--only-to", "2026-01-03")
    assert done.out[-1] == "marked as done: 1/5, 2/5"
    site.quickly("run")
    assert site.loaded() == FIVE[2:]
    assert marked(site) == dict.fromkeys(
        ("000000", "000001"), f"marked done by {person()}: a bug in the source"
    )
    status = site.invoke("status", *site.place).out
    assert status[2].endswith(f"marked done by {person()}: a bug in the source")
    document = json.loads("\n".join(site.invoke("status", *site.place, "--json").out))
    assert [chunk["marked"] and chunk["marked"]["mark"] for chunk in document["chunks"]] == [
        *["done"] * 2,
        *[None] * 3,
    ]
    second = site.rows()[1]
    assert (second.error, second.claimed_by, second.records_loaded, second.attempt) == (None, None, None, 1)


def test_what_was_loaded_by_hand_is_never_loaded_beside(site):
    """The ledger does not know its rows, so nothing replaces them, and nothing may stand beside them."""
    seeded(site.target, plan())
    mark(site, "--done", "--only", "2")
    site.quickly("run")
    [error] = site.quickly("restate", "--yes", code=2).err
    assert error.startswith("error: chunk 2 cannot be loaded again: ")
    [*_, error] = mark(site, "--pending", "--only", "2", code=2).err
    assert error.startswith("error: Nothing was marked: the ledger does not know the rows of 2/5, ")
    assert site.statuses() == ["completed"] * 5
    mark(site, "--pending", "--only", "2", "--forget")
    assert site.statuses() == ["completed", "pending", *["completed"] * 3]
    site.quickly("run")
    assert site.loaded() == FIVE


def test_a_restated_chunk_that_is_marked_as_done_keeps_its_old_version(loaded):
    loaded.quickly("restate", "--only", "3", "--yes")
    mark(loaded, "--done", "--only", "3")
    loaded.quickly("run")
    assert loaded.loaded() == FIVE
    third = loaded.rows()[2]
    assert (third.records_loaded, bool(third.load_ids)) == (1, True)
    # Its rows are known still, so that it can be restated again.
    loaded.quickly("restate", "--only", "3", "--yes", "--run")
    assert loaded.loaded() == [(1, 10), (2, 20), (3, 300), (4, 40), (5, 50)]


def test_held_chunks_are_named_and_left(site):
    seeded(site.target, plan())
    with opened(site.target) as ledger:
        take(ledger, plan(), 2, "worker-3:4711")
    done = mark(site, "--done", "--all", code=1)
    assert done.err == [
        "chunk 3/5 is not marked: worker-3:4711 holds it, so wait for it or release it first",
        "error: 1 of 5 chunks were not marked",
    ]
    assert site.statuses() == ["completed", "completed", "running", "completed", "completed"]
    assert "000002" not in marked(site)


def test_a_chunk_that_somebody_claims_meanwhile_is_not_marked(site, monkeypatch):
    seeded(site.target, plan())

    def meanwhile(question: str, done: str) -> None:
        with opened(site.target) as ledger:
            take(ledger, plan(), 0)

    monkeypatch.setattr(sys.modules["airflow_provider_backfill.cli.mark"], "confirm", meanwhile)
    done = site.invoke("mark", *site.place, *ID, *WHY, "--done", "--only", "1", "--only", "2", code=1)
    assert done.out[-1] == "marked as done: 2/5"
    assert done.err[0] == "changed meanwhile, and not marked: 1/5"
    assert site.statuses()[:2] == ["running", "completed"]


def test_a_ledger_of_another_tool_can_be_marked(site):
    words = ("pending", "failed", "completed", "pending", "pending")
    foreign_table(site.target, [foreign_row(plan(), chunk, word) for chunk, word in enumerate(words)])
    mark(site, "--done", "--only-to", "2026-01-03")
    assert site.statuses() == ["completed"] * 3 + ["pending"] * 2


# Marking as pending


def test_chunks_that_are_marked_as_pending_replace_what_stands_of_them(loaded):
    done = mark(loaded, "--pending", "--only-from", "2026-01-04")
    assert done.out[-1] == "marked as pending: 4/5, 5/5"
    # Somebody has deleted the rows of one of the two.
    with loaded.target.connect(10) as session:
        session.execute("DELETE FROM web_raw.page_views WHERE id = 5")
    loaded.quickly("run")
    assert loaded.loaded() == [(1, 10), (2, 20), (3, 30), (4, 400), (5, 500)]
    # The mark is history by now.
    assert not any("marked" in line for line in loaded.invoke("status", *loaded.place).out)
    assert set(marked(loaded)) == {"000003", "000004"}


def test_rows_that_stand_are_not_forgotten(loaded):
    [*_, error] = mark(loaded, "--pending", "--only", "5", "--forget", code=2).err
    assert error.startswith("error: Nothing was marked: table page_views has 1 rows of these chunks, ")
    assert loaded.statuses() == ["completed"] * 5
    with loaded.target.connect(10) as session:
        session.execute("DELETE FROM web_raw.page_views WHERE id = 5")
    mark(loaded, "--pending", "--only", "5", "--forget")
    fifth = loaded.rows()[4]
    assert (str(fifth.status), fifth.load_ids, fifth.records_loaded) == ("pending", None, None)
    loaded.quickly("run")
    assert loaded.loaded() == [(1, 10), (2, 20), (3, 30), (4, 40), (5, 500)]


def test_what_is_marked_so_already_is_no_error(loaded):
    assert mark(loaded, "--done", "--all").out == ["there is nothing to mark as done"]
    assert marked(loaded) == {}


def test_the_backfill_may_be_named_as_run_names_it(loaded):
    loaded.quickly("mark", "--pending", *WHY, "--only", "1", "--yes")
    assert loaded.statuses()[0] == "pending"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*ID, *WHY, "--all"), "error: Pass either --done or --pending; "),
        ((*ID, *WHY, "--all", "--done", "--pending"), "error: Pass either --done or --pending; "),
        ((*ID, *WHY, "--done", "--all", "--forget"), "error: --forget goes with --pending; "),
        (
            (*ID, *WHY, "--done"),
            "error: Say which chunks: pass --only, --only-from and --only-to, or --all; ",
        ),
        ((*ID, *WHY, "--done", "--all", "--only", "1"), "error: Say which chunks: "),
        ((*ID, "--done", "--all"), "error: Missing option '--reason'; "),
        ((*ID, "--done", "--all", "--reason", " "), "error: --reason is empty; "),
        ((*WHY, "--done", "--all", SOURCE), "error: Say which backfill: pass --backfill-id, or SOURCE, "),
        ((*ID, *WHY, "--done", "--only", "0"), "error: Invalid value for '--only': '0' is no chunk"),
        ((*ID, *WHY, "--done", "--all"), "error: Nothing was marked: nobody can be asked where stdin is no "),
    ],
)
def test_misuse_is_one_line_and_changes_nothing(site, arguments, message):
    seeded(site.target, plan())
    done = site.invoke("mark", *site.place, *arguments, code=2)
    assert done.err[-1].startswith(message)
    assert site.statuses() == ["pending"] * 5

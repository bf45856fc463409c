"""``chunked-backfill release`` on real databases: what it takes from whom, and what it leaves alone."""

from __future__ import annotations

import getpass
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.records import Claimant
from airflow_provider_backfill.engine.runs import Runs
from airflow_provider_backfill.engine.stage import stage_prefix, working_directory
from airflow_provider_backfill.exceptions import ClaimLostError
from tests.support.commands import BACKFILL_ID, THIRD_RUN_ID, Site, answered
from tests.support.ledgers import (
    LONG,
    end_leases,
    foreign_row,
    foreign_table,
    opened,
    plan,
    seeded,
    sql,
    take,
    wait_until,
)
from tests.support.sources import events, source_of
from tests.support.worlds import IDS, World

FIVE = [(day, day * 10) for day in range(1, 6)]
MODULE = sys.modules["airflow_provider_backfill.cli.release"]
THIRD = ("--backfill-id", BACKFILL_ID, "--chunk", "3")


@pytest.fixture
def site(tmp_path: Path, target: Target) -> Site:
    return Site(home=tmp_path / "home", target=target)


@pytest.fixture
def stuck(site: Site) -> Site:
    """Chunks 3 and 4 are held, the one's lease has run out, the other's lives."""
    seeded(site.target, plan())
    with opened(site.target) as ledger:
        take(ledger, plan(), 2, "worker-3:4711")
    end_leases(site.target)
    task = Claimant(
        claimed_by="worker-4:1", dag_id="web", dag_run_id="manual__1", task_id="views.chunk", map_index=3
    )
    with opened(site.target) as ledger:
        ledger.claim(ledger.chunk(BACKFILL_ID, "000003"), task, LONG)
    return site


def release(site: Site, *arguments: str, code: int = 0):
    return site.invoke("release", *site.place, *arguments, code=code)


def reached(site: Site) -> bool:
    return (site.home / "reached").exists()


# What is shown, and what is released


def test_without_a_choice_it_shows_who_holds_what_and_changes_nothing(stuck):
    before = stuck.rows()
    done = release(stuck, "--yes", code=2)
    assert done.out[0].startswith(f"Backfill {BACKFILL_ID}, web_events [2026-01-01T00:00:00+00:00 → ")
    words = [line.split() for line in done.out[1:4]]
    assert words[0] == ["chunk", "interval", "holder", "task", "claimed", "lease"]
    third, fourth = (" ".join(line) for line in words[1:])
    assert third.startswith("3/5 2026-01-03 → 2026-01-04 worker-3:4711 ")
    assert third.endswith(" s ago")
    assert " ran out " in third
    assert fourth.startswith("4/5 2026-01-04 → 2026-01-05 worker-4:1 web manual__1 views.chunk[3] ")
    assert fourth.endswith(" min left")
    [error] = done.err
    assert error == (
        "error: Nothing was released: pass --all, or --backfill-id and --chunk; "
        "see chunked-backfill release --help"
    )
    after = stuck.rows()
    assert [(row.status, row.claim_token) for row in after] == [
        (row.status, row.claim_token) for row in before
    ]


@pytest.mark.parametrize("spelling", ["3", "3/5", "000002"])
def test_the_chosen_chunk_is_given_back_and_no_other(stuck, spelling):
    done = release(stuck, "--backfill-id", BACKFILL_ID, "--chunk", spelling, "--yes")
    assert done.out[-1] == f"released chunk 3/5 of backfill {BACKFILL_ID}, held by worker-3:4711"
    assert done.err == []
    assert stuck.statuses() == ["pending", "pending", "failed", "running", "pending"]
    third = stuck.rows()[2]
    assert third.error.startswith(f"released by {getpass.getuser()}@")
    assert (third.claim_token, third.lease_expires_at, third.will_retry) == (None, None, None)
    assert third.attempt == 1


def test_all_are_given_back_and_the_window_can_be_run(stuck):
    done = release(stuck, "--all", "--yes")
    assert [line for line in done.out if line.startswith("released")] == [
        f"released chunk 3/5 of backfill {BACKFILL_ID}, held by worker-3:4711",
        f"released chunk 4/5 of backfill {BACKFILL_ID}, held by worker-4:1",
    ]
    stuck.quickly("run")
    assert stuck.loaded() == FIVE
    assert [row.attempt for row in stuck.rows()] == [1, 1, 2, 2, 1]
    assert release(stuck, "--all").out == ["nothing is held"]
    completed = release(stuck, *THIRD)
    assert completed.out == [f"chunk 3/5 of backfill {BACKFILL_ID}: nobody holds it, it is completed"]


def test_an_attempt_that_was_stopped_is_recorded_as_failed(stuck):
    keys = {"source_section": "web_events", "backfill_id": BACKFILL_ID, "resource_name": None}
    place = {"destination": stuck.target.dialect.name, "dataset": "web_raw"}
    with stuck.target.connect(5) as session:
        for row in stuck.rows()[1:3]:
            Runs(session, stuck.target).begin(True, run_id=row.run_id, **keys, **place)
    release(stuck, "--all", "--yes")
    with stuck.target.connect(5) as session:
        found = {run.run_id: (run.status, run.error) for run in Runs(session, stuck.target).read()}
    assert found[stuck.rows()[1].run_id] == ("running", None)
    assert found[THIRD_RUN_ID] == ("failed", stuck.rows()[2].error)


def test_one_source_or_backfill_alone_is_given_back(stuck):
    other = plan(source="shop")
    seeded(stuck.target, other)
    with opened(stuck.target) as ledger:
        take(ledger, other, 0, "worker-9:9")
    release(stuck, "--all", "--source", "shop", "--yes")
    assert [row.source_section for row in stuck.rows() if str(row.status) == "failed"] == ["shop"]
    release(stuck, "--all", "--backfill-id", BACKFILL_ID, "--yes")
    assert {str(row.status) for row in stuck.rows()} == {"failed", "pending"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backfill-id", "x", "--all"), f"error: The ledger has no backfill 'x'; it has: {BACKFILL_ID}; "),
        (
            ("--backfill-id", BACKFILL_ID, "--chunk", "6"),
            f"error: Backfill {BACKFILL_ID} has no chunk 6; it has 5 ",
        ),
        (
            ("--backfill-id", BACKFILL_ID, "--chunk", "3/6"),
            f"error: Backfill {BACKFILL_ID} has no chunk 3/6; ",
        ),
        (("--all", "--source", "shop"), "error: There is nothing to release: source shop has none; dataset "),
        (THIRD, "error: Nothing was released: nobody can be asked where stdin is no terminal, pass --yes; "),
    ],
)
def test_what_cannot_be_meant_is_misuse(stuck, arguments, message):
    before = stuck.statuses()
    assert release(stuck, *arguments, code=2).err[0].startswith(message)
    assert stuck.statuses() == before


def test_where_there_is_no_ledger_there_is_nothing_to_release(site):
    missing = (
        "the database does not exist" if site.target.dialect.name == "duckdb" else "dataset web_raw has no"
    )
    [error] = release(site, "--all", "--yes", code=2).err
    assert error.startswith(f"error: There is nothing to release: {missing}")
    assert site.rows() == []


# Asking


@pytest.mark.parametrize("keys", [b"n\n", b"\n", b"\x03", b"\x04"], ids=["no", "enter", "Ctrl-C", "Ctrl-D"])
def test_an_answer_other_than_yes_leaves_everything_alone(stuck, keys):
    stage = stage_prefix(stuck.target, "web_events") + "dead"
    with stuck.target.connect(10) as session:
        stuck.target.dialect.create_schema(session, stage)
    code, shown = answered(stuck, keys, "release", *stuck.place, "--all")
    assert code == 1
    assert "Release 2 chunks? [y/N]: " in shown
    assert shown.rstrip().endswith("error: interrupted" if keys == b"\x03" else "error: nothing was released")
    assert stuck.statuses() == ["pending", "pending", "running", "running", "pending"]
    assert stuck.stages() == [stage]


def test_yes_releases(stuck):
    code, shown = answered(stuck, b"y\n", "release", *stuck.place, *THIRD)
    assert code == 0, shown
    assert "Release 1 chunk? [y/N]: y" in shown
    assert stuck.statuses()[2:4] == ["failed", "running"]


# Races


def test_a_chunk_that_somebody_claimed_meanwhile_stays_theirs(stuck, monkeypatch):
    def meanwhile(count: int) -> None:
        with opened(stuck.target) as ledger:
            take(ledger, plan(), 2, "worker-5:5")

    monkeypatch.setattr(MODULE, "_ask", meanwhile)
    done = release(stuck, "--all", code=1)
    assert done.err == [
        f"not released: chunk 3/5 of backfill {BACKFILL_ID}, worker-5:5 has claimed it since",
        "error: 1 of 2 chunks were not released",
    ]
    assert done.out[-1] == f"released chunk 4/5 of backfill {BACKFILL_ID}, held by worker-4:1"
    third, fourth = stuck.rows()[2:4]
    assert (third.claimed_by, third.held, third.attempt) == ("worker-5:5", True, 2)
    assert str(fourth.status) == "failed"


def test_a_chunk_that_was_completed_meanwhile_stays_so(site, monkeypatch):
    seeded(site.target, plan())
    with opened(site.target) as ledger:
        claim = take(ledger, plan(), 2)

    def meanwhile(count: int) -> None:
        with opened(site.target) as ledger:
            ledger.complete(claim, 1, ["1"])

    monkeypatch.setattr(MODULE, "_ask", meanwhile)
    done = release(site, *THIRD, code=1)
    assert done.err[0] == f"not released: chunk 3/5 of backfill {BACKFILL_ID}, it was completed since"
    assert site.statuses()[2] == "completed"


# Another tool's ledger


def foreign(site: Site) -> None:
    foreign_table(
        site.target,
        [
            foreign_row(
                plan(),
                chunk,
                "running" if chunk == 2 else "pending",
                claimed_by="ops:1" if chunk == 2 else None,
                claimed_at=datetime(2026, 2, 1, tzinfo=UTC) if chunk == 2 else None,
            )
            for chunk in range(5)
        ],
    )


def test_a_claim_without_a_token_is_released(site):
    foreign(site)
    shown = release(site, code=2).out
    assert shown[2].split()[0] == "3/5"
    assert shown[2].endswith(" d ago  none")
    done = release(site, *THIRD, "--yes")
    assert done.out[-1] == f"released chunk 3/5 of backfill {BACKFILL_ID}, held by ops:1"
    assert site.rows()[2].error.startswith("released by ")
    site.quickly("run")
    assert site.loaded() == FIVE


def test_a_claim_without_a_token_that_was_taken_anew_is_not_released(site, monkeypatch):
    foreign(site)

    def meanwhile(count: int) -> None:
        later = datetime(2026, 2, 2, tzinfo=UTC)
        sql(site.target, "UPDATE {ledger} SET claimed_at = :later WHERE chunk_id = '000002'", later=later)

    monkeypatch.setattr(MODULE, "_ask", meanwhile)
    done = release(site, "--all", code=1)
    assert done.err[0] == f"not released: chunk 3/5 of backfill {BACKFILL_ID}, ops:1 has claimed it since"
    assert site.statuses()[2] == "running"


# A holder that lives


def test_a_living_attempt_loses_its_claim_and_publishes_nothing(tmp_path, target, settings):
    world = World(target, settings)
    site = Site(
        home=tmp_path / "home",
        target=target,
        environment={"AIRFLOW__CHUNKED_BACKFILL__WORK_DIR": settings.work_dir},
    )
    released: list[str] = []

    def rows():
        yield from events()
        if not released:
            released.extend(site.invoke("release", *site.place, "--all", "--yes").out)

    backfill, made = world.seeded(source_of(rows))
    with pytest.raises(ClaimLostError, match=r"the claim was lost \(it ran out or was released\)"):
        world.run(backfill, made, 1)
    assert any(text.startswith("released chunk 1/3 ") for text in released)
    row = world.row(made)
    assert str(row.status) == "failed"
    assert row.error.startswith("released by ")
    assert not world.target_has("events") or world.query("SELECT count(*) FROM @events") == [(0,)]
    world.run(backfill, made)
    assert world.query(IDS) == [(1, 10), (2, 20), (3, 30)]
    assert world.leftovers() == []


def test_a_running_command_is_told_that_it_lost_the_chunk(site):
    site.tell("stuck")
    with site.running() as run:
        wait_until(lambda: reached(site), 60)
        release(site, "--all", "--yes")
        assert site.statuses()[2] == "failed"
        assert site.attempts() == []
        site.untell("stuck")
        done = run.ends(1)
    assert any("the claim was lost" in text for text in done.out)
    assert site.rows()[2].error.startswith("released by ")
    assert site.loaded() == [row for row in FIVE if row[0] != 3]
    site.quickly("run")
    assert site.loaded() == FIVE


# What dead attempts left


def test_what_a_killed_run_left_is_dropped(site):
    site.tell("stuck")
    with site.running() as run:
        wait_until(lambda: reached(site), 60)
        run.signal_all(signal.SIGKILL)
        run.ends(-signal.SIGKILL)
    [directory] = site.attempts()
    stage = stage_prefix(site.target, "web_events") + site.rows()[2].claim_token
    with site.target.connect(10) as session:
        site.target.dialect.create_schema(session, stage)
    done = release(site, *THIRD, "--yes")
    assert done.out[-3:] == [
        f"released chunk 3/5 of backfill {BACKFILL_ID}, held by {site.rows()[2].claimed_by}",
        f"dropped stage {stage}",
        f"dropped directory {site.work / directory}",
    ]
    assert (site.stages(), site.attempts()) == ([], [])


def test_leftovers_are_dropped_though_nothing_is_held(site):
    seeded(site.target, plan())
    stage = stage_prefix(site.target, "web_events") + "dead"
    stranger = stage_prefix(site.target, "shop") + "dead"
    directory = Path(working_directory(site.target, stage, str(site.work)))
    directory.mkdir(parents=True)
    with site.target.connect(10) as session:
        for schema in (stage, stranger):
            site.target.dialect.create_schema(session, schema)
    done = release(site)
    assert done.out == ["nothing is held", f"dropped stage {stage}", f"dropped directory {directory}"]
    # Not this ledger's: another dataset's, or a source's that never wrote here.
    assert site.stages() == [stranger]
    assert not directory.exists()

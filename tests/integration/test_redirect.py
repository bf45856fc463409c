"""``into``: a backfill goes into another dataset, ledger and all, and leaves its own alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_backfill.engine.destinations import Target
from tests.support.commands import BACKFILL_ID, Site
from tests.support.ledgers import sql

ROWS = [(day, day * 10) for day in range(1, 6)]


@pytest.fixture
def site(tmp_path: Path, target: Target) -> Site:
    return Site(home=tmp_path / "home", target=target)


def test_data_and_ledger_go_into_the_other_dataset_under_the_same_identity(site: Site) -> None:
    done = site.quickly("run", "--into", "web_look")
    assert done.out[0] == "redirected into dataset web_look; web_raw is left as it is"
    assert done.out[-1] == f"Backfill {BACKFILL_ID}: 5 completed, 0 skipped, 0 claimed elsewhere (5 chunks)"
    assert sql(site.target, 'SELECT id, "order" FROM web_look.page_views ORDER BY id') == ROWS
    with site.target.connect(5) as session:
        assert site.target.dialect.schemas(session, "web_") == ["web_look"]
    again = site.quickly("run", "--into", "web_look")
    assert again.out[-1].endswith("0 completed, 5 skipped, 0 claimed elsewhere (5 chunks)")
    # The dataset itself has not been loaded, and can be.
    site.quickly("run")
    assert site.loaded() == ROWS


@pytest.mark.parametrize("name", ["web_raw", "web__raw", "WebRaw"])
def test_the_dataset_itself_is_refused_however_it_is_spelled(site: Site, name: str) -> None:
    done = site.quickly("run", "--into", name, code=2)
    [error] = done.err
    assert error.startswith(
        f"error: into '{name}' is the dataset that the backfill belongs to; pass another name"
    )
    assert site.rows() == []


def test_a_name_that_is_none_is_refused(site: Site) -> None:
    [error] = site.quickly("plan", "--into", " ", code=2).err
    assert "' ' is empty" in error


def test_promote_moves_the_window_and_resumes(site: Site) -> None:
    site.quickly("run", "--into", "web_look")
    done = site.quickly("promote", "--into", "web_look", "--concurrency", "2")
    assert done.out[-2:] == [
        f"Backfill {BACKFILL_ID}: 5 completed, 0 skipped, 0 claimed elsewhere (5 chunks)",
        "dataset web_look is as it was; drop it when it is of no more use",
    ]
    assert site.loaded() == ROWS
    assert site.statuses() == ["completed"] * 5
    assert site.stages() == site.attempts() == []
    # Another time there is nothing to do, and a run finds the window loaded.
    for command in ("promote", "run"):
        more = ("--into", "web_look") if command == "promote" else ()
        tally = site.quickly(command, *more).out[-2:]
        assert f"Backfill {BACKFILL_ID}: 0 completed, 5 skipped, 0 claimed elsewhere (5 chunks)" in tally
    assert site.loaded() == ROWS


def test_promote_is_refused_without_a_dataset_or_what_is_missing_there(site: Site) -> None:
    [error] = site.quickly("promote", code=2).err
    assert error.startswith("error: Pass the dataset that was loaded into before as --into; see")
    site.tell("broken")
    site.quickly("run", "--into", "web_look", code=1)
    [error] = site.quickly("promote", "--into", "web_look", code=2).err
    assert error.startswith(
        "error: dataset 'web_look' cannot be promoted: it has not completed 2026-01-03 → 2026-01-06 of"
    )
    assert site.rows() == []


def test_a_window_is_handed_over_once_it_is_covered(site: Site) -> None:
    site.tell("broken")
    handover = ("--handover", "web_forward")
    assert not any("handed over" in line for line in site.quickly("run", *handover, code=1).out)
    site.untell("broken")
    done = site.quickly("run", *handover)
    line = "handed over to pipeline web_forward: page_views.at: none → 2026-01-06T00:00:00+00:00"
    assert done.out[-1] == line
    assert (
        site.quickly("run", *handover).out[-1]
        == f"{line.partition('none')[0]}2026-01-06T00:00:00+00:00, as it was"
    )
    # A window before it would turn the pipeline back, which is known before a chunk runs.
    earlier = ("--from", "2025-12-30", "--to", "2026-01-01")
    for command in ("run", "plan"):
        [error] = site.quickly(command, *handover, *earlier, code=2).err
        assert "would move backwards; leave handover out" in error
    assert len(site.rows()) == 5


def test_a_redirected_window_is_handed_over_when_it_is_promoted(site: Site) -> None:
    handover = ("--into", "web_look", "--handover", "web_forward")
    [error] = site.quickly("run", *handover, code=2).err
    assert "the window goes into dataset web_look" in error
    site.quickly("run", "--into", "web_look")
    assert any(
        "handed over to pipeline web_forward" in line for line in site.quickly("promote", *handover).out
    )
    assert site.loaded() == ROWS

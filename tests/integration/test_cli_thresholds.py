"""The command and plans above a threshold: what has to be confirmed, by whom, and when."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from airflow_provider_backfill.engine.destinations import Target
from tests.support.commands import BACKFILL_ID, SOURCE, WINDOW, Site, answered
from tests.support.ledgers import slowed

SETTING = "AIRFLOW__CHUNKED_BACKFILL__"
FIRST_TWO = ("--from", "2026-01-01", "--to", "2026-01-03", "--chunk", "1d")
ABOVE = "the estimate (about 2 h; 2 rows; from 2 chunks) is above max_estimated_hours = 1"


@pytest.fixture
def site(tmp_path: Path, duck_target: Target) -> Site:
    return Site(home=tmp_path / "home", target=duck_target)


@pytest.fixture
def known(site: Site) -> Site:
    """Two days are loaded, an hour each, and no more than an hour passes without asking."""
    site.environment[f"{SETTING}MAX_ESTIMATED_HOURS"] = "1"
    # Without history nothing is asked, whatever the threshold is.
    site.invoke("run", SOURCE, *FIRST_TWO, *site.place)
    slowed(site.target, 3_600)
    return site


def window(last: int) -> tuple[str, ...]:
    return ("--from", "2026-01-01", "--to", f"2026-01-{last:02d}", "--chunk", "1d")


def planned(site: Site, *arguments: str) -> dict[str, Any]:
    done = site.invoke("plan", SOURCE, *arguments, *site.place, "--json")
    document: dict[str, Any] = json.loads("\n".join(done.out))
    return document


def test_what_takes_too_long_is_refused_before_anything_is_written(known: Site) -> None:
    before = known.rows()
    done = known.invoke("run", SOURCE, *window(5), *known.place, code=2)
    assert done.out == []
    [error] = done.err
    assert error.startswith(f"error: {ABOVE}; confirm it with --yes ")
    assert known.rows() == before
    known.invoke("run", SOURCE, *window(5), *known.place, "--yes")
    assert [number for number, _ in known.loaded()] == [1, 2, 3, 4]


def test_what_is_left_of_it_counts_and_who_runs_it_at_once(known: Site) -> None:
    # Two hours of work, an hour for two at once.
    arguments = (SOURCE, *window(5), *known.place)
    assert planned(known, *window(5), "--concurrency", "2")["estimate"]["above"] is False
    known.invoke("run", SOURCE, *window(4), *known.place)
    known.invoke("run", *arguments)
    assert len(known.loaded()) == 4
    shown = known.invoke("status", *known.place).out
    [first] = {row.backfill_id for row in known.rows()[:2]}
    assert sum(line.endswith(f"covered by {first}") for line in shown) == 4


def test_the_plan_says_so_beside_the_estimate(known: Site) -> None:
    shown = known.invoke("plan", SOURCE, *window(5), *known.place).out
    assert shown[-1] == ("estimate   about 2 h; 2 rows; from 2 chunks; above max_estimated_hours = 1")
    estimate = planned(known, *window(5))["estimate"]
    assert (estimate["seconds"]["median"], estimate["max_estimated_hours"], estimate["above"]) == (
        7_200,
        1,
        True,
    )
    assert planned(known, *window(4))["estimate"]["above"] is False


def test_several_windows_count_together(known: Site) -> None:
    known.invoke("run", SOURCE, "--from", "2026-01-04", "--to", "2026-01-05", "--chunk", "1d", *known.place)
    slowed(known.target, 3_600)
    gaps = ("--strategy", "gaps", *window(6))
    document = planned(known, *gaps)
    assert [each["estimate"]["above"] for each in document["windows"]] == [False, False]
    assert (document["estimate"]["seconds"]["median"], document["estimate"]["above"]) == (7_200, True)
    shown = known.invoke("plan", SOURCE, *gaps, *known.place).out
    assert shown[-1] == "together  about 2 h; 2 rows; from 3 chunks; above max_estimated_hours = 1"
    assert "about 2 h" in known.invoke("run", SOURCE, *gaps, *known.place, code=2).err[0]
    # What the lookback loads again is among it.
    back = ("--lookback", "1", "--from", "2026-01-05", "--to", "2026-01-06", "--chunk", "1d")
    assert "(about 2 h; 2 rows" in known.invoke("run", SOURCE, *back, *known.place, code=2).err[0]


def test_more_chunks_than_max_chunks_are_confirmed_likewise(site: Site) -> None:
    site.environment[f"{SETTING}MAX_CHUNKS"] = "4"
    refused = site.quickly("run", code=2)
    [error] = refused.err
    assert error.startswith("error: chunk '1d' cuts this window into 5 chunks, more than max_chunks = 4; use")
    assert "confirm it with --yes" in error
    assert "chunks     5 of 1d; above max_chunks = 4" in site.quickly("plan").out
    document = planned(site, *WINDOW)
    assert (document["max_chunks"], document["above_max_chunks"]) == (4, True)
    assert site.rows() == []
    site.quickly("run", "--yes", "--into", "web_look")
    # What is recorded is not asked about again.
    site.quickly("pause", "--into", "web_look")
    site.quickly("resume", "--into", "web_look")
    site.quickly("promote", "--into", "web_look")
    assert len(site.loaded()) == 5
    site.quickly("mark", "--pending", "--all", "--reason", "a bug", "--yes")
    assert "error: chunk '1d' cuts" in site.quickly("run", code=2).err[0]
    assert site.statuses() == ["pending"] * 5


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[str]]:
    """Somebody who gives one answer to whatever is asked; what that was."""

    def give(answer: bool) -> list[str]:
        asked: list[str] = []

        def confirm(question: str) -> bool:
            asked.append(question)
            return answer

        for name in ("asking", "request", "run"):
            monkeypatch.setattr(sys.modules[f"airflow_provider_backfill.cli.{name}"], "can_ask", lambda: True)
        monkeypatch.setattr(click, "confirm", confirm)
        return asked

    return give


def test_no_loads_nothing(known: Site, answers: Callable[[bool], list[str]]) -> None:
    asked = answers(False)
    done = known.invoke("run", SOURCE, *window(5), *known.place, code=1)
    assert (done.err, asked) == ([ABOVE, "error: nothing was loaded"], ["Run it all the same?"])
    assert len(known.rows()) == 2
    # What is below is not asked about.
    known.invoke("run", SOURCE, *window(4), *known.place)
    assert len(asked) == 1


def test_who_loads_again_at_once_is_asked_about_both(
    known: Site, answers: Callable[[bool], list[str]]
) -> None:
    asked = answers(True)
    done = known.invoke("restate", SOURCE, *FIRST_TWO, *known.place, "--run")
    assert (done.err, asked) == ([ABOVE], ["Load 2 chunks again?"])
    assert [row.attempt for row in known.rows()] == [2, 2]


def test_somebody_at_a_terminal_is_asked(known: Site) -> None:
    known.environment[f"{SETTING}MAX_CHUNKS"] = "4"
    code, shown = answered(known, b"y\n", "run", SOURCE, *WINDOW, *known.place)
    assert code == 0, shown
    assert shown.splitlines()[:3] == [
        "chunk '1d' cuts this window into 5 chunks, more than max_chunks = 4",
        ABOVE.replace("2 h; 2 rows", "3 h; 3 rows"),
        "Run it all the same? [y/N]: y",
    ]
    assert len(known.loaded()) == 5
    assert known.rows()[-1].backfill_id == BACKFILL_ID

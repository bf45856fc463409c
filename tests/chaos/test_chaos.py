"""The short version of the chaos run, and proof that it can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import points
from tests.chaos.matrix import DESTINATIONS, scenarios, shapes

FAULTS = 20
REPOSITORY = Path(__file__).parents[2]


def chaos(tmp_path: Path, *arguments: str) -> tuple[int, str, dict[str, Any]]:
    """Run the harness in a process of its own: it forks, and this one has threads."""
    file = tmp_path / "chaos.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--json", str(file), *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert file.exists(), said
    return done.returncode, said, json.loads(file.read_text())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("destination", DESTINATIONS)
def test_no_fault_loses_or_doubles_a_row(destination: str, tmp_path: Path) -> None:
    code, said, found = chaos(tmp_path, "--faults", str(FAULTS), "--destination", destination)
    assert code == 0, said
    totals = found["totals"][destination]
    assert totals["faults"] >= FAULTS
    for name in ("lost rows", "rows too many", "leftovers", "violations"):
        assert totals[name] == 0, said


@pytest.mark.parametrize(
    ("broken", "scenario", "found_out"),
    [
        ("untransactional", "duckdb/inside-publish/sigkill/append/forward/last/one", "rows lost"),
        ("untransactional", "postgres/inside-publish/sigkill/append/forward/last/one", "a consumer saw half"),
        ("unguarded", "postgres/after-normalise/sigstop/append/forward/middle/one", "rows too many"),
        ("untidy", "duckdb/mid-load/sigkill/append/forward/last/one", "left behind: stage"),
        (
            "deaf",
            "postgres/mid-extract/sigterm/append/forward/first/one",
            "SIGTERM ended the process with -15",
        ),
    ],
)
def test_a_broken_product_is_found_out(broken: str, scenario: str, found_out: str, tmp_path: Path) -> None:
    code, said, found = chaos(
        tmp_path,
        *("--sabotage", broken, "--only", scenario, "--faults", "1", "--parallel", "1"),
        *("--destination", scenario.partition("/")[0]),
    )
    assert code == 1, said
    # On a busy machine a scenario may lose its lease before it comes to its point, and is played again.
    [result] = [one for one in found["scenarios"] if one["injected"]]
    assert found_out in "; ".join(result["violations"])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("destination", DESTINATIONS)
def test_a_short_run_meets_every_point_and_every_fault(destination: str, seed: int) -> None:
    plays = scenarios(destination, seed)
    first = [next(plays) for _ in range(FAULTS)]
    assert {one.point for one in first} == set(points.POINTS)
    possible = [fault for fault in points.FAULTS if shapes(destination, points.AFTER_CLAIM, fault)]
    assert {one.fault for one in first} == set(possible)
    again = scenarios(destination, seed)
    assert [next(again).name for _ in range(FAULTS)] == [one.name for one in first]

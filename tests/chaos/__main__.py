"""``python -m tests.chaos``: let faults loose on backfills and say what became of them."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from tests.support import environment as environment

from tests.chaos import disk, lanes, report, sabotage  # isort: skip
from tests.chaos.matrix import DESTINATIONS, Scenario, scenarios  # isort: skip
from tests.chaos.scenario import Result  # isort: skip

#: A pattern that matches nothing in so many scenarios matches nothing at all.
_HORIZON = 20_000


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description="Hit backfills at every step with every fault, run them again, and check every row.",
    )
    parser.add_argument("--faults", type=int, default=20, help="faults to inject a destination (%(default)s)")
    parser.add_argument("--destination", choices=[*DESTINATIONS, "both"], default="both")
    parser.add_argument("--seed", type=int, default=1, help="order of the scenarios (%(default)s)")
    parser.add_argument(
        "--only",
        action="append",
        metavar="POINT/FAULT",
        help="only these; also */FAULT, or the whole name of a scenario, as a violation names it",
    )
    parser.add_argument("--parallel", type=int, default=2, help="scenarios at a time (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    parser.add_argument("--sabotage", choices=sabotage.SABOTAGES, default="", help="break the product first")
    parser.add_argument(
        "--emulated-disk", action="store_true", help="no real file systems for disk faults, as without root"
    )
    parser.add_argument("--verbose", action="store_true", help="a line a scenario")
    return parser.parse_args()


def _chosen(destination: str, seed: int, only: list[str] | None) -> list[Scenario]:
    plays = islice(scenarios(destination, seed), _HORIZON)
    if not only:
        return list(plays)
    return [one for one in plays if any(one.matches(pattern) for pattern in only)]


def run(options: argparse.Namespace) -> report.Report:
    """Play what is asked for."""
    destinations = DESTINATIONS if options.destination == "both" else (options.destination,)
    home = Path(tempfile.mkdtemp(prefix="chaos-"))
    lanes.preload()
    mounting = not options.emulated_disk and disk.may_mount(home)
    conditions = lanes.Conditions(home=home, mounting=mounting, broken=options.sabotage)
    summary = report.Report(seed=options.seed, mounted=conditions.mounting)
    try:
        for destination in destinations:
            began = time.monotonic()
            plays = _chosen(destination, options.seed, options.only)
            if not plays:
                raise SystemExit(f"no scenario of {destination} is called {options.only}")

            def enough(result: Result) -> bool:
                summary.add(result)
                if options.verbose or result.violations or not result.injected:
                    print(report.line(result), file=sys.stderr, flush=True)
                return bool(summary.injected(result.scenario.destination) >= options.faults)

            lanes.in_lanes(iter(plays), enough, conditions, parallel=options.parallel)
            summary.seconds[destination] = time.monotonic() - began
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return summary


def main() -> int:
    options = _arguments()
    summary = run(options)
    text = summary.markdown()
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    if options.json:
        options.json.write_text(json.dumps(summary.as_json(), indent=1) + "\n")
    return 1 if summary.violations else 0


if __name__ == "__main__":
    sys.exit(main())

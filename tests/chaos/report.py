"""What a run found out, for people and for machines."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.chaos import points
from tests.chaos.matrix import DESTINATIONS, impossible
from tests.chaos.scenario import Result

OUTCOMES = {
    "killed": "the process is gone; the chunk was loaded again once its lease had run out",
    "killed, published": "the process is gone, and the chunk was already published as a whole",
    "gave back": "the attempt failed, left nothing, and gave the chunk back at once",
    "cut off": "the attempt could not reach the ledger; its lease ran out",
    "refused": "somebody else had taken the chunk; the late attempt published nothing",
    "published": "the attempt came through, and published the chunk as a whole",
    "retried": "the same process claimed the chunk anew and published it",
}


@dataclass(slots=True)
class Report:
    """The results of one run.

    Args:
        seed: The order of the scenarios.
        mounted: The disks were real file systems.
        results: One a scenario.
        seconds: Time a destination took.
    """

    seed: int
    mounted: bool
    results: list[Result] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        self.results.append(result)

    def of(self, destination: str) -> list[Result]:
        return [one for one in self.results if one.scenario.destination == destination]

    def injected(self, destination: str) -> int:
        """How many faults did hit."""
        return sum(one.injected for one in self.of(destination))

    @property
    def violations(self) -> list[Result]:
        return [one for one in self.results if one.violations]

    def markdown(self) -> str:
        """Tables and totals."""
        parts = [self._destination(name) for name in DESTINATIONS if self.of(name)]
        used = {one.outcome for one in self.results}
        parts.append("\n".join(f"- {name}: {text}" for name, text in OUTCOMES.items() if name in used))
        if self.violations:
            parts.append("\n".join(detail(one) for one in self.violations))
        return "\n\n".join(parts)

    def _destination(self, destination: str) -> str:
        cells: dict[tuple[str, str], Counter[str]] = {}
        for one in self.of(destination):
            if one.injected:
                cell = cells.setdefault((one.scenario.point, one.scenario.fault), Counter())
                cell["VIOLATION" if one.violations else one.outcome] += 1
        lines = [
            f"{destination}, seed {self.seed}",
            "",
            "| point | " + " | ".join(points.FAULTS) + " |",
            "|---|" + "---|" * len(points.FAULTS),
        ]
        for point in points.POINTS:
            row = []
            for fault in points.FAULTS:
                reason = impossible(destination, point, fault)
                found = cells.get((point, fault))
                text = ", ".join(f"{count} {name}" for name, count in found.most_common()) if found else "–"
                row.append(f"n/a ({reason})" if reason else text)
            lines.append(f"| {point} | " + " | ".join(row) + " |")
        totals = self.totals(destination)
        lines += ["", "; ".join(f"{name} {value}" for name, value in totals.items())]
        return "\n".join(lines)

    def totals(self, destination: str) -> dict[str, Any]:
        """Sums over a destination's scenarios."""
        results = self.of(destination)
        return {
            "faults": self.injected(destination),
            "points not reached": len(results) - self.injected(destination),
            "lost rows": sum(one.lost for one in results),
            "rows too many": sum(one.extra for one in results),
            "leftovers": sum(one.leftovers for one in results),
            # A scenario has no step for them: it runs the same command again, or it is a violation.
            "hand edits": 0,
            "violations": sum(bool(one.violations) for one in results),
            "most runs again": max((one.reruns for one in results), default=0),
            "most attempts": max((one.attempts for one in results), default=0),
            "seconds": round(self.seconds.get(destination, 0.0)),
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "real_disks": self.mounted,
            "totals": {name: self.totals(name) for name in DESTINATIONS if self.of(name)},
            "scenarios": [
                {**asdict(one), "scenario": one.scenario.name, "seconds": round(one.seconds, 2)}
                for one in self.results
            ],
        }


def line(result: Result) -> str:
    """One line a scenario."""
    what = result.outcome if result.injected else "NOT REACHED"
    wrong = f"; VIOLATION: {'; '.join(result.violations)[:300]}" if result.violations else ""
    reason = f" ({result.reason[:160]})" if result.reason else ""
    return (
        f"{result.scenario.name}: {what}{reason}, {result.attempts} attempts, {result.seconds:.1f} s{wrong}"
    )


def detail(result: Result) -> str:
    """All that it takes to find out why."""
    wrong = "\n".join(f"  {text}" for text in result.violations)
    return (
        f"VIOLATION in {result.scenario.name}\n{wrong}\n"
        f"  again: python -m tests.chaos --faults 1 --destination {result.scenario.destination}"
        f" --only '{result.scenario.name}'\n{result.log}"
    )

"""Every scenario there is, and the order they are run in."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from fnmatch import fnmatch
from functools import cached_property
from math import gcd

from tests.chaos import points
from tests.chaos.source import CHUNKS, DISPOSITIONS

DESTINATIONS = ("duckdb", "postgres")
DATASETS = ("forward", "empty")
CHUNK_IDS = {"first": "000000", "middle": "000001", "last": f"{CHUNKS - 1:06d}"}
#: One driver, two drivers on one ledger, or the command with two workers of its own.
DRIVERS = ("one", "two", "workers")

_SERVER = frozenset({points.CONNECTION_LOSS, points.LOST_REPLY, points.POSTGRES_RESTART})
#: The command with workers imports everything three times over: some rounds of some faults have to do.
_WORKERS_FAULTS = frozenset({points.SIGKILL, points.SIGKILL_GROUP})


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One fault at one point of one attempt of one backfill.

    Args:
        destination: The database.
        point: Where, a key of `points.POINTS`.
        fault: What, a key of `points.FAULTS`.
        disposition: How rows are written.
        dataset: ``forward``: a forward pipeline had run; ``empty``: the backfill makes the tables.
        chunk: The chunk that is hit: ``first``, ``middle`` or ``last``.
        drivers: Who runs the backfill, one of `DRIVERS`.
    """

    destination: str
    point: str
    fault: str
    disposition: str
    dataset: str
    chunk: str
    drivers: str

    @cached_property
    def name(self) -> str:
        """What ``--only`` takes to run this scenario again."""
        return "/".join(astuple(self))

    @property
    def chunk_id(self) -> str:
        return CHUNK_IDS[self.chunk]

    def matches(self, pattern: str) -> bool:
        """Whether ``pattern`` is its name, or the beginning of it, with or without the destination."""
        candidates = (self.name, self.name.partition("/")[2])
        return any(fnmatch(name, pattern) or fnmatch(name, f"{pattern}/*") for name in candidates)


def impossible(destination: str, point: str, fault: str) -> str | None:
    """Why there is no such fault there; None where there is."""
    if destination == "duckdb" and fault in _SERVER:
        return "no server, no connection"
    return None


def shapes(destination: str, point: str, fault: str) -> list[Scenario]:
    """Every backfill that the fault may hit at the point; none where there is no such fault."""
    if impossible(destination, point, fault):
        return []
    found = [
        Scenario(
            destination=destination,
            point=point,
            fault=fault,
            disposition=disposition,
            dataset=dataset,
            chunk=chunk,
            drivers=drivers,
        )
        for disposition in DISPOSITIONS
        for dataset in DATASETS
        for chunk in CHUNK_IDS
        for drivers in DRIVERS
    ]
    if point == points.IN_MIGRATION:
        # The first attempt migrates; those after it find nothing to do.
        found = [one for one in found if one.dataset == "empty" and one.chunk == "first"]
    if fault == points.SIGKILL_GROUP:
        # With one driver it is SIGKILL.
        found = [one for one in found if one.drivers != "one"]
    if fault == points.LOST_REPLY:
        # The next COMMIT shall be that of the process at the point.
        found = [one for one in found if one.drivers == "one"]
    if fault not in _WORKERS_FAULTS:
        found = [one for one in found if one.drivers != "workers"]
    return found


def scenarios(destination: str, seed: int) -> Iterator[Scenario]:
    """All scenarios without end, the same for the same seed.

    Each round visits every cell of the matrix once, along its diagonals, so that a few scenarios already meet
    all points and all faults; the shapes of a cell take turns.
    """
    rng = random.Random(f"{seed}/{destination}")
    rows = rng.sample(list(points.POINTS), len(points.POINTS))
    columns = [fault for fault in points.FAULTS if shapes(destination, rows[0], fault)]
    rng.shuffle(columns)
    turns: dict[tuple[str, str], list[Scenario]] = {}
    for point in rows:
        for fault in columns:
            turns[point, fault] = _in_turn(shapes(destination, point, fault), rng)
    for turn in range(1_000_000):
        for diagonal in range(len(columns)):
            for number, point in enumerate(rows):
                fault = columns[(number + diagonal) % len(columns)]
                cell = turns[point, fault]
                yield cell[turn % len(cell)]


def _in_turn(choices: Sequence[Scenario], rng: random.Random) -> list[Scenario]:
    """In an order in which neighbours differ in most things, from a place of the seed's choice."""
    # Workers of their own cost seconds: one scenario in eight at most.
    slow = [one for one in choices if one.drivers == "workers"]
    quick = [one for one in choices if one.drivers != "workers"]
    count = len(quick)
    # Steps of the golden section, which meet everything once if they share no factor with the number.
    step = next((step for step in range(int(count * 0.62) + 1, count) if gcd(step, count) == 1), 1)
    first = rng.randrange(count)
    order = [quick[(first + number * step) % count] for number in range(count)]
    rng.shuffle(slow)
    for position, one in zip(range(rng.randrange(1, 4), count, 8), slow, strict=False):
        order.insert(position, one)
    return order

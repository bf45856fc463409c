"""Measuring two programs in turn, so that a busy machine slows both down alike.

A figure is the median of the ratios of neighbouring rounds: what else the machine does in a round, it does to
both programs of it. Which of them goes first changes from round to round.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one run of a program took.

    Args:
        wall: By the clock on the wall, seconds.
        cpu: Time of the processor, of this process and of those it waited for, seconds. A database server's
            is not in it.
    """

    wall: float
    cpu: float


#: Does one round, whose number it is told; returns what it cost if the harness cannot see that from outside.
Program = Callable[[int], Cost | None]


class Kind(StrEnum):
    """What a budget limits."""

    RATIO = "ratio"
    DIFFERENCE = "difference"
    VALUE = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most that a figure may come to.

    Args:
        most: The limit; None where a figure is only told.
        kind: Of what it is: ours divided by theirs, ours minus theirs, or ours alone; default the ratio.
    """

    most: float | None
    kind: Kind = Kind.RATIO


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Several measurements of one thing."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def least(self) -> float:
        return min(self.values)

    @property
    def most(self) -> float:
        return max(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table.

    Args:
        group: The file that measured it.
        name: What was measured.
        unit: Of the values, for example ``s``.
        ours: Of this project.
        theirs: Of what it is compared with; None where there is nothing to compare with.
        against: What that is.
        ratios: Ours divided by theirs, a round each.
        cpu_ratios: The same by the processor's time.
        budget: The limit.
    """

    group: str
    name: str
    unit: str
    ours: Spread
    theirs: Spread | None = None
    against: str = ""
    ratios: Spread | None = None
    cpu_ratios: Spread | None = None
    budget: Budget

    @property
    def decisive(self) -> float:
        """The number that the budget is about."""
        if self.budget.kind is Kind.RATIO and self.ratios:
            return self.ratios.median
        if self.budget.kind is Kind.DIFFERENCE and self.theirs:
            return self.ours.median - self.theirs.median
        return self.ours.median

    @property
    def met(self) -> bool | None:
        """Whether the budget is kept; None if there is none."""
        return None if self.budget.most is None else self.decisive <= self.budget.most


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured.

    Args:
        rounds: How often each program runs, after a warm-up that does not count; at least 5.
        quick: Leave out what takes long.
    """

    rounds: int = 5
    quick: bool = False


#: A group of figures.
Group = Callable[[Scale], Iterator[Figure]]


def cost_of(work: Callable[[], object]) -> Cost:
    """Run something and tell what it took."""
    gc.collect()
    wall, cpu = time.perf_counter(), cpu_seconds()
    work()
    return Cost(wall=time.perf_counter() - wall, cpu=cpu_seconds() - cpu)


def cpu_seconds() -> float:
    """Of this process and of the children that it has waited for."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def in_turn(ours: Program, theirs: Program, rounds: int, warm_ups: int = 1) -> tuple[list[Cost], list[Cost]]:
    """Run two programs in alternation; returns what each round cost, the warm-ups left out."""
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    programs = (ours, theirs)
    for number in range(warm_ups + rounds):
        for which in (0, 1) if number % 2 else (1, 0):
            cost = _run(programs[which], number)
            if number >= warm_ups:
                costs[which].append(cost)
    return costs


def _run(program: Program, number: int) -> Cost:
    told: list[Cost | None] = []
    seen = cost_of(lambda: told.append(program(number)))
    return told[0] or seen


def compared(
    group: str,
    name: str,
    ours: Program,
    theirs: Program,
    *,
    against: str,
    most: float | None,
    rounds: int,
    warm_ups: int = 1,
) -> Figure:
    """Run two programs in turn and make a figure of how long they took."""
    mine, others = in_turn(ours, theirs, rounds, warm_ups)
    return Figure(
        group=group,
        name=name,
        unit="s",
        ours=spread(cost.wall for cost in mine),
        theirs=spread(cost.wall for cost in others),
        against=against,
        ratios=spread(one.wall / other.wall for one, other in zip(mine, others, strict=True)),
        cpu_ratios=spread(one.cpu / max(other.cpu, 1e-6) for one, other in zip(mine, others, strict=True)),
        budget=Budget(most=most),
    )


def spread(values: Iterable[float]) -> Spread:
    return Spread(values=tuple(values))


def alone(group: str, name: str, values: Sequence[float], *, unit: str, most: float | None) -> Figure:
    """A figure that is compared with nothing but its budget."""
    return Figure(
        group=group,
        name=name,
        unit=unit,
        ours=spread(values),
        budget=Budget(most=most, kind=Kind.VALUE),
    )


def load() -> float:
    """How many processes want the processor, of late."""
    return os.getloadavg()[0]

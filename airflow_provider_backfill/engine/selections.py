"""Which resources backfills of one source are about, and what of one another's they have loaded (pure).

To the ids, all resources of a module are one source, and so is a source that has got another resource since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Self


class Reach(Enum):
    """What a backfill has of another one's resources."""

    ALL = auto()
    SOME = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The resources of a backfill.

    Args:
        named: Those that were asked for by name; none for all that the source selects.
        present: Those that the source selected when it was planned; none where nobody has noted them.
    """

    named: frozenset[str] = frozenset()
    present: frozenset[str] = frozenset()

    @classmethod
    # A ledger has the same few texts over and over.
    @lru_cache(maxsize=256)
    def of(cls, named: str | None, present: str | None) -> Self:
        """From texts with commas, as the dataset has them."""
        return cls(named=_names(named), present=_names(present))

    @property
    def known(self) -> frozenset[str]:
        """What it is about; none if nobody knows."""
        return self.named or self.present

    def reach(self, mine: Selection) -> Reach:
        """What this one has of the resources of another.

        What nobody has noted counts as everything; and so does a source that has got resources since, where
        none is asked for by name, or it could never be backfilled on.
        """
        if self.known and mine.known and self.known.isdisjoint(mine.known):
            return Reach.NONE
        if self.named:
            return Reach.ALL if mine.named and mine.named <= self.named else Reach.SOME
        if mine.named and self.present and not mine.named <= self.present:
            return Reach.SOME
        return Reach.ALL

    def holds(self, other: Selection) -> bool:
        """Whether it has all that another one has, whose rows it would replace."""
        if not (self.known and other.known):
            return not self.named
        return other.known <= self.known

    def lacks(self, mine: Selection) -> frozenset[str]:
        """What this one has not of the resources of another, as far as that is known."""
        return mine.known - self.known if self.known else frozenset()


def listed(names: Iterable[str]) -> str:
    """Resources as one text, as the dataset has them."""
    return ",".join(sorted(names))


def _names(text: str | None) -> frozenset[str]:
    return frozenset(filter(None, (text or "").split(",")))

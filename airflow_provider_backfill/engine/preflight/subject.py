"""What a rule looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.preflight.cursors import Cursor, cursors_of

if TYPE_CHECKING:
    from dlt.extract.resource import DltResource


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A resource that a backfill would load.

    Args:
        resource: The resource.
        chunks: The chunks, in order; default none, which leaves out what depends on them.
        formats: Cursor formats by resource, ``*`` for those not named; default none.
    """

    resource: DltResource
    chunks: Sequence[Interval] = ()
    formats: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.resource.name)

    @cached_property
    def cursors(self) -> tuple[Cursor, ...]:
        """What bounds it, nearest first."""
        return tuple(cursors_of(self.resource))

    @property
    def whole(self) -> bool:
        """The window is of whole numbers."""
        return bool(self.chunks) and self.chunks[0].whole

    def has_format(self, cursor: Cursor) -> bool:
        """Somebody said how the cursor's values spell a time."""
        return not self.formats.keys().isdisjoint({cursor.owner, self.name, "*"})

    @property
    def disposition(self) -> tuple[str, str | None]:
        """The write disposition and the merge strategy, as far as they are declared."""
        declared: object = self.resource.write_disposition
        if isinstance(declared, dict):
            return str(declared.get("disposition")), declared.get("strategy")
        hints = self.resource._hints or {}
        strategy = hints.get("x-merge-strategy")
        return str(declared), None if strategy is None else str(strategy)

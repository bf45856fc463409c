"""The list that a DAG run has mapped, as the dataset remembers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from airflow_provider_backfill.engine.intervals import Interval, stored_bound
from airflow_provider_backfill.engine.records import Claimant
from airflow_provider_backfill.engine.statements import LEDGER_TABLE, MAPS_TABLE, Statements

#: What one mapped task runs, in order: a backfill, and ids of its chunks.
Group = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """What a DAG run maps.

    Args:
        backfill_ids: The backfills that were chosen, in order, also those with nothing to run.
        groups: One a mapped task, in order; also chunks of other backfills, which are loaded again.
    """

    backfill_ids: tuple[str, ...]
    groups: tuple[Group, ...]

    @property
    def again(self) -> dict[str, tuple[str, ...]]:
        """Chunks of backfills that were not chosen, by backfill."""
        found: dict[str, tuple[str, ...]] = {}
        for backfill_id, chunk_ids in self.groups:
            if backfill_id not in self.backfill_ids:
                found[backfill_id] = tuple(sorted((*found.get(backfill_id, ()), *chunk_ids)))
        return found


class TaskMaps(Statements):
    """The table ``_dlt_backfill_maps`` beside the ledger: one row a DAG run, its plan task, and a request.

    A plan task that runs again in its DAG run must map the same chunks in the same order, or the mapped tasks
    would change places. The ledger cannot tell which these were: another run may have completed one since,
    and a strategy would choose other windows now.
    """

    file_name = "maps.sql"

    def recall(self, planner: Claimant, request: str) -> Mapped | None:
        """What this task of this DAG run mapped first; None if it has mapped nothing yet.

        Args:
            planner: The task.
            request: What differs where something else is asked for.
        """
        if not self._has(MAPS_TABLE):
            return None
        for backfill_ids, chunk_ids in self._run("recall", _keys(planner, request)):
            return Mapped(
                backfill_ids=tuple(filter(None, backfill_ids.split(","))),
                groups=tuple(map(_group, filter(None, chunk_ids.split(",")))),
            )
        return None

    def first(
        self,
        planner: Claimant,
        request: str,
        mapped: Mapped,
        on_first: Callable[[], None] = lambda: None,
    ) -> Mapped:
        """What this task of this DAG run mapped first; ``mapped`` if it has mapped nothing yet.

        Args:
            planner: The task.
            request: What differs where something else is asked for.
            mapped: What to map, of backfills that are seeded.
            on_first: Called in the transaction that remembers the list, the first time.
        """
        keys = _keys(planner, request)
        dialect = self._target.dialect
        with dialect.exclusive(self._target), self._session.transaction():
            dialect.lock(self._session, f"{self._target.dataset_name}|maps|{request}")
            known = self.recall(planner, request)
            if known is not None:
                self._run("planned_again", keys)
                return known
            texts = (f"{backfill_id}:{'+'.join(chunk_ids)}" for backfill_id, chunk_ids in mapped.groups)
            self._run(
                "remember",
                {**keys, "backfill_ids": ",".join(mapped.backfill_ids), "chunk_ids": ",".join(texts)},
            )
            on_first()
            return mapped

    def completed(
        self, claimant: Claimant, interval: Interval, resources: Sequence[str]
    ) -> tuple[str, str] | None:
        """Backfill and chunk that this very task has completed over the interval; None if there is none."""
        if not self._has(LEDGER_TABLE, "dag_run_id"):
            return None
        rows = self._run(
            "completed",
            {
                "dag_id": claimant.dag_id,
                "dag_run_id": claimant.dag_run_id,
                "task_id": claimant.task_id,
                "map_index": -1 if claimant.map_index is None else claimant.map_index,
                "chunk_from": stored_bound(interval.start),
                "chunk_to": stored_bound(interval.end),
                "resource_name": ",".join(sorted(set(resources))),
            },
        )
        return (str(rows[0][0]), str(rows[0][1])) if rows else None


def _keys(planner: Claimant, request: str) -> dict[str, str | None]:
    return {
        "dag_id": planner.dag_id,
        "dag_run_id": planner.dag_run_id,
        "task_id": planner.task_id,
        "request": request,
    }


def _group(text: str) -> Group:
    backfill_id, _, chunk_ids = text.partition(":")
    return backfill_id, tuple(chunk_ids.split("+"))

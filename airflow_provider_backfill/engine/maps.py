"""The list that a DAG run has mapped, as the dataset remembers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_provider_backfill.engine.intervals import Interval, stored_bound
from airflow_provider_backfill.engine.records import Claimant
from airflow_provider_backfill.engine.statements import LEDGER_TABLE, Statements

#: What one mapped task runs, in order: ids of chunks.
Group = tuple[str, ...]


class TaskMaps(Statements):
    """The table ``_dlt_backfill_maps`` beside the ledger: one row a DAG run, its plan task and backfill.

    A plan task that runs again in its DAG run must map the same chunks in the same order, or the mapped tasks
    would change places. The ledger cannot tell which these were: another run may have completed one since.
    """

    file_name = "maps.sql"

    def first(
        self,
        planner: Claimant,
        backfill_id: str,
        groups: Sequence[Group],
        on_first: Callable[[], None] = lambda: None,
    ) -> list[Group]:
        """The list that this task of this DAG run mapped first; ``groups`` if it has mapped none yet.

        Args:
            planner: The task.
            backfill_id: The backfill, which is seeded.
            groups: What to map, in order.
            on_first: Called in the transaction that remembers the list, the first time.
        """
        keys = {
            "dag_id": planner.dag_id,
            "dag_run_id": planner.dag_run_id,
            "task_id": planner.task_id,
            "backfill_id": backfill_id,
        }
        dialect = self._target.dialect
        with dialect.exclusive(self._target), self._session.transaction():
            dialect.lock(self._session, f"{self._target.dataset_name}|maps|{backfill_id}")
            known = self._run("recall", keys)
            if known:
                self._run("planned_again", keys)
                return _parsed(known[0][0])
            self._run("remember", {**keys, "chunk_ids": ",".join("+".join(group) for group in groups)})
            on_first()
            return list(groups)

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


def _parsed(text: str) -> list[Group]:
    return [tuple(group.split("+")) for group in text.split(",")] if text else []

"""What the dataset remembers of Airflow's tasks: the list that a DAG run has mapped, and who did what."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.records import Claimant
from airflow_provider_backfill.engine.statements import LEDGER_TABLE, Statements


class TaskMaps(Statements):
    """The table ``_dlt_backfill_maps`` beside the ledger: one row a DAG run, its plan task and backfill.

    A plan task that runs again in its DAG run must map the same chunks in the same order, or the mapped tasks
    would change places. The ledger cannot tell which these were: another run may have completed one since.
    """

    file_name = "maps.sql"

    def first(self, planner: Claimant, backfill_id: str, chunk_ids: Sequence[str]) -> tuple[str, ...]:
        """The list that this task of this DAG run mapped first; ``chunk_ids`` if it has mapped none yet.

        The dataset must exist, as it does once the backfill is seeded.
        """
        keys = {
            "dag_id": planner.dag_id,
            "dag_run_id": planner.dag_run_id,
            "task_id": planner.task_id,
            "backfill_id": backfill_id,
        }
        dialect = self._target.dialect
        with dialect.exclusive(self._target), self._session.transaction():
            # Two planners that create the table at once would meet in the catalogue.
            dialect.lock(self._session, f"{self._target.dataset_name}|ledger")
            self._run("create_maps")
            self._run("remember", {**keys, "chunk_ids": ",".join(chunk_ids)})
            [(first,)] = self._run("recall", keys)
        return tuple(first.split(",")) if first else ()

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
                "chunk_from": interval.start,
                "chunk_to": interval.end,
                "resource_name": ",".join(sorted(set(resources))),
            },
        )
        return (str(rows[0][0]), str(rows[0][1])) if rows else None

"""Telling a chunk's own clear from a clear of its whole DAG run."""

from __future__ import annotations

from airflow_provider_backfill.engine.records import Claimant
from airflow_provider_backfill.engine.statements import Statements


class TaskVisits(Statements):
    """The table ``_dlt_backfill_tasks`` beside the ledger: one row a task that runs chunks, its last try.

    Airflow tells a task neither that it was cleared alone nor when it ran last. The plan task runs again when
    the whole DAG run is cleared, and leaves the time with the list that it maps (see `TaskMaps`).
    """

    file_name = "visits.sql"

    def begin(self, claimant: Claimant, backfill_id: str, try_number: int) -> bool:
        """Note that a try begins.

        Args:
            claimant: The task.
            backfill_id: The backfill that its chunks are part of.
            try_number: Airflow's number of the try.

        Returns:
            Whether an earlier try of this task stood last, and the window has not been planned since.
        """
        keys = {
            "dag_id": claimant.dag_id,
            "dag_run_id": claimant.dag_run_id,
            "task_id": claimant.task_id,
            "map_index": -1 if claimant.map_index is None else claimant.map_index,
        }
        last = self._run("last", {**keys, "backfill_id": backfill_id})
        self._run("begin", {**keys, "try_number": try_number})
        return any(number < try_number and not planned_since for number, planned_since in last)

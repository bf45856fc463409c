"""What the dataset remembers of a backfill's inputs that neither its id nor its ledger rows tell."""

from __future__ import annotations

import logging
from collections.abc import Collection

from airflow_provider_backfill.engine.statements import INPUTS_TABLE, Statements
from airflow_provider_backfill.exceptions import PlanConflictError

log = logging.getLogger(__name__)


class PlanInputs(Statements):
    """The table ``_dlt_backfill_inputs`` beside the ledger: the resources that a backfill was planned with.

    Two resources of one module are one source to the ids, and so is a source that has got another resource
    since. Its completed chunks would be skipped, and nothing of the other resource be loaded.
    """

    file_name = "inputs.sql"

    def remember(self, backfill_id: str, resources: Collection[str]) -> None:
        """Note what a backfill is planned with, unless that is known already. The table must exist."""
        if not resources:
            return
        with self._target.dialect.exclusive(self._target):
            self._run("remember", {"backfill_id": backfill_id, "resources": ",".join(sorted(resources))})

    def copy(self, backfill_id: str, to: str) -> None:
        """Note of another backfill that it is planned with the same."""
        for (text,) in self._run("recall", {"backfill_id": backfill_id}):
            self.remember(to, str(text).split(","))

    def check(self, backfill_id: str, resources: Collection[str], *, whole: bool = False) -> None:
        """Compare with what the backfill was planned with; reads only.

        Raises:
            PlanConflictError: It was planned with none of these resources.
        """
        if not resources or not self._has(INPUTS_TABLE):
            return
        for (text,) in self._run("recall", {"backfill_id": backfill_id}):
            planned, given = set(str(text).split(",")), set(resources)
            # What replaces a version deletes its rows of every resource.
            if planned.isdisjoint(given) or (whole and planned - given):
                raise PlanConflictError(
                    backfill_id, {"resources": (",".join(sorted(planned)), ",".join(sorted(given)))}
                )
            if given - planned:
                warn_of_new_resources(backfill_id, given - planned)


def warn_of_new_resources(backfill_id: str, names: Collection[str]) -> None:
    """Warn that completed chunks of a backfill have none of resources that the source has got since."""
    log.warning(
        "backfill %s was planned before the source had %s: chunks that were completed then have "
        "none of it; backfill it under a source_name of its own",
        backfill_id,
        ", ".join(sorted(names)),
    )

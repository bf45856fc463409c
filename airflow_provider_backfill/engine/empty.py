"""What is said of a chunk that has no rows, or of which rows were dropped."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_backfill.engine.source import OnEmpty, SourceSpec
from airflow_provider_backfill.exceptions import EmptyChunkError

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.extract import Package
    from airflow_provider_backfill.engine.ledger import Ledger
    from airflow_provider_backfill.engine.records import Claim

log = logging.getLogger(__name__)


def refuse_empty(spec: SourceSpec, claim: Claim, package: Package) -> None:
    """Fail an attempt without rows where this was asked for, before anything is loaded.

    Raises:
        EmptyChunkError: There is no row, and ``on_empty`` is ``fail``.
    """
    if not package.records and spec.on_empty == OnEmpty.FAIL:
        raise EmptyChunkError(str(claim.number))


def mention(spec: SourceSpec, claim: Claim, package: Package, ledger: Ledger) -> None:
    """Warn of what looks like success and may be none. Call it when the chunk is published."""
    if package.dropped:
        log.warning(
            "chunk %s (%s): the source yielded %d rows outside of it, which were dropped",
            claim.number,
            claim.interval,
            package.dropped,
        )
    if package.records or spec.on_empty != OnEmpty.WARN:
        return
    for number, records in ledger.neighbours(claim):
        log.warning(
            "chunk %s (%s) has no rows, and chunk %d beside it has %d: a bound that matches nothing looks "
            "the same; check what the source was asked for, or pass on_empty='ok' if that is to be expected",
            claim.number,
            claim.interval,
            number,
            records,
        )
        return

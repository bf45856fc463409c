"""What is said of a chunk that has no rows, or of which rows were dropped."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_backfill.engine.source import OnEmpty, SourceSpec
from airflow_provider_backfill.exceptions import EmptyChunkError

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.extract import Package
    from airflow_provider_backfill.engine.intervals import Interval
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
    if spec.on_empty != OnEmpty.WARN:
        return
    # Whichever of two neighbours is published second finds the other. Two in the same instant may find each
    # other, and both speak; none is ever silent.
    beside = ledger.neighbours(claim)
    rows = {number: records for number, (_, records) in beside.items()}
    before, behind = claim.number - 1, claim.number + 1
    if not package.records:
        full = next((number for number in (before, behind) if rows.get(number)), None)
        if full:
            _warn(claim.number, claim.interval, full, rows[full])
        return
    # One that stands behind a chunk with rows was spoken of when the second of those two was published.
    told = bool(rows.get(before - 1))
    for empty in (behind,) if told else (before, behind):
        if rows.get(empty) == 0:
            _warn(empty, beside[empty][0], claim.number, package.records)


def _warn(empty: int, interval: Interval, full: int, records: int) -> None:
    log.warning(
        "chunk %d (%s) has no rows, and chunk %d beside it has %d: a bound that matches nothing looks the "
        "same; check what the source was asked for, or pass on_empty='ok' if that is to be expected",
        empty,
        interval,
        full,
        records,
    )

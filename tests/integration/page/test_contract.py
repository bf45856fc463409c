"""schemathesis against the API: what its OpenAPI document says is what it does, also with nonsense."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
)

from tests.support.ledgers import opened, plan, seeded, take

#: How many requests an operation: the test is to stay quick.
EXAMPLES = 3
#: test_rights.py sees that nothing is answered without a login, test_actions.py what bodies are refused; here
#: every request has a login, and a word too many in an address does no harm. And no document says which
#: params a DAG takes, or that a bound is behind another.
NOT_HERE = [ignored_auth, negative_data_rejection, positive_data_acceptance]


def operations(site) -> list[Any]:
    """What the document describes."""
    schema = schemathesis.openapi.from_asgi("/backfills/openapi.json", site.app, headers=login(site))
    results: list[Any] = list(schema.get_all_operations())
    return [result.ok() for result in results]


def login(site) -> dict[str, str]:
    return {"authorization": f"Bearer {site.tokens['editor']}"}


def faults_of(site, operation: Any, mode: GenerationMode, real: dict[str, str] | None) -> list[str]:
    """Where a few requests, right or wrong ones, are not answered as the document says.

    Args:
        site: The API server.
        operation: What is asked.
        mode: Whether requests fit the document.
        real: What stands in their addresses; None: anything.
    """

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def keeps(case: Any) -> None:
        if real is not None:
            case.path_parameters = {name: real[name] for name in case.path_parameters or {}}
        case.call_and_validate(headers=login(site), excluded_checks=NOT_HERE)

    try:
        keeps()
    except schemathesis.errors.FailureGroup as group:
        return [f"{operation.label}: {fault}" for fault in group.exceptions]
    return []


@pytest.mark.parametrize(
    ("mode", "there"),
    [(GenerationMode.POSITIVE, True), (GenerationMode.NEGATIVE, False)],
    ids=["right", "wrong"],
)
def test_the_api_keeps_to_its_document(site, warehouse, mode, there):
    seeded(warehouse, plan())
    with opened(warehouse) as ledger:
        ledger.complete(take(ledger, plan(), 0), 1, ["1.0"])
        take(ledger, plan(), 1)
    place = site.place(plan()).split("/")
    real = {"dag_id": place[5], "ledger": place[7], "backfill_id": place[9], "chunk_id": "000001"}
    found = operations(site)
    assert len(found) >= 14
    faults = [fault for each in found for fault in faults_of(site, each, mode, real if there else None)]
    assert not faults, "\n".join(faults)

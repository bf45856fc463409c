"""Every example DAG loads, and Airflow knows the provider."""

from __future__ import annotations

import json

import pytest

from airflow_provider_backfill import __version__
from tests.support.airflow import ROOT
from tests.system.conftest import World

pytestmark = pytest.mark.airflow2


def test_every_example_loads(world: World) -> None:
    examples = {path.stem for path in (ROOT / "dags_examples").glob("*.py")}
    assert examples
    world.airflow.wait_for_dags(*examples)
    assert world.airflow.api.import_errors() == {}
    # What a file has besides is called after it.
    found = {dag_id for dag_id in world.airflow.api.dag_ids() if dag_id.startswith("example_")}
    assert found - examples == {"example_assets_consumer"}


def test_airflow_lists_the_provider(world: World) -> None:
    printed = world.airflow.command("providers", "list", "--output", "json")
    providers = {provider["package_name"]: provider for provider in json.loads(printed)}
    assert providers["airflow-provider-backfill"]["version"] == __version__

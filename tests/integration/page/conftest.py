"""Airflow's API server in this process, with DAGs in its database and users who may do different things."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.engine.destinations import Target
from airflow_provider_backfill.engine.plan import BackfillPlan

#: There is no API server on Airflow 2.
collect_ignore_glob = [] if version("apache-airflow").startswith("3.") else ["test_*.py"]

API = "/backfills/api/v1"
USERS = ("editor", "viewer", "outsider", "neighbour", "stranger")


@dataclass(frozen=True, kw_only=True)
class Site:
    """The API server.

    Args:
        app: Airflow's application.
        plugin: Ours, which is mounted there.
        tokens: A bearer token of each user.
    """

    app: Any
    plugin: Any
    tokens: dict[str, str]

    def place(self, backfill: BackfillPlan, dag_id: str = "events") -> str:
        """Where the API has a backfill, seen through a DAG whose first ledger has it."""
        listed = self.client().get(f"{API}/dags/{dag_id}/backfills").json()
        ledger = listed["ledgers"][0]["ledger"]
        return f"{API}/dags/{dag_id}/ledgers/{ledger}/backfills/{backfill.backfill_id}"

    def client(self, user: str | None = "editor") -> Any:
        """A client with a user's bearer token; None: without."""
        from fastapi.testclient import TestClient

        client = TestClient(self.app)
        if user:
            client.headers["authorization"] = f"Bearer {self.tokens[user]}"
        return client

    def forget(self) -> None:
        """Look anew: the same look answers for a second."""
        from airflow_provider_backfill.plugins.looks import Looks

        self.plugin.state.looks = Looks()

    def browser(self, user: str = "editor") -> Any:
        """A client with a user's session cookie."""
        client = self.client(None)
        client.cookies["_token"] = self.tokens[user]
        return client


@pytest.fixture(scope="session")
def airflow_site() -> Iterator[Site]:
    settings = {
        "AIRFLOW__API_AUTH__JWT_SECRET": "s" * 64,
        "AIRFLOW__API__SECRET_KEY": "k" * 32,
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.support.airflow_rights.RightsBook",
    }
    os.environ |= settings
    from airflow import settings as airflow_settings
    from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.models import import_all_models
    from airflow.models.base import Base
    from airflow.utils.db import synchronize_log_template

    import_all_models()
    Base.metadata.create_all(airflow_settings.engine)
    synchronize_log_template()
    purge_cached_app()
    app = create_app(apps="core")
    _store_dags()
    tokens = {
        name: get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=name, role="viewer"))
        for name in USERS
    }
    mounted: list[Any] = list(app.routes)
    [plugin] = [route.app for route in mounted if getattr(route, "path", "") == "/backfills"]
    yield Site(app=app, plugin=plugin, tokens=tokens)
    purge_cached_app()
    for name in settings:
        os.environ.pop(name, None)


#: For what may differ between the databases.
on_both = pytest.mark.parametrize("warehouse", ["duckdb", "postgres"], indirect=True)


@pytest.fixture
def warehouse(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    """The Airflow connection ``warehouse``, to an empty database; where its dataset ``web_raw`` stands."""
    from airflow_provider_backfill.hooks.backfill import BackfillHook
    from tests.support.tasks import duckdb_connection, postgres_connection

    if getattr(request, "param", "duckdb") == "duckdb":
        connection = duckdb_connection(tmp_path / "web.duckdb")
    else:
        connection = postgres_connection(request.getfixturevalue("postgres_url"))
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", connection)
    return BackfillHook(conn_id="warehouse", dataset_name="web_raw").target


@pytest.fixture
def site(airflow_site: Site, warehouse: Target) -> Site:
    """Nothing is known of an earlier test's ledgers."""
    airflow_site.forget()
    return airflow_site


def _store_dags() -> None:
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.definitions.dag import SerializedDAG
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    dags = [LazyDeserializedDAG.from_dag(dag) for dag in _dags()]
    with create_session() as session:
        session.add(DagBundleModel(name="tests"))
        session.flush()
        SerializedDAG.bulk_write_to_db("tests", None, dags, session=session)
        session.flush()
        for dag in dags:
            SerializedDagModel.write_dag(dag, bundle_name="tests", session=session)


def _dags() -> list[Any]:
    from airflow.providers.common.compat.sdk import DAG, BaseOperator, Param

    from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

    common: dict[str, Any] = {
        "source": "page_view_source:page_views",
        "start": "2026-01-01",
        "end": "2026-01-06",
        "chunk": "1d",
    }
    with DAG("events", schedule=None) as events:
        ChunkedBackfillOperator.expand_window(
            task_id="web_events", conn_id="warehouse", dataset_name="web_raw", **common
        )
    with DAG("neighbours", schedule=None) as neighbours:
        ChunkedBackfillOperator.expand_window(
            task_id="web_events", conn_id="warehouse", dataset_name="web_raw", **common
        )
    with DAG("many", schedule=None) as many:
        ChunkedBackfillOperator.expand_window(
            task_id="look", conn_id="warehouse", dataset_name="web_raw", into="web_look", **common
        )
        ChunkedBackfillOperator.expand_window(
            task_id="templated", conn_id="{{ var.value.where }}", dataset_name="web_raw", **common
        )
        ChunkedBackfillOperator.expand_window(
            task_id="inline", destination="postgresql://u:s3cret@db/x", dataset_name="web_raw", **common
        )
        ChunkedBackfillOperator.expand_window(
            task_id="unknown", conn_id="nowhere", dataset_name="web_raw", **common
        )
    with DAG(
        "on_demand",
        schedule=None,
        params={
            "start": Param(type="string", format="date"),
            "end": Param(type="string", format="date"),
            "chunk": Param("1d", type="string"),
        },
    ) as on_demand:
        ChunkedBackfillOperator.expand_window(
            task_id="site",
            source="page_view_source:page_views",
            conn_id="warehouse",
            dataset_name="web_raw",
            start="{{ params.start }}",
            end="{{ params.end }}",
            chunk="{{ params.chunk }}",
        )
    with DAG("plain", schedule=None) as plain:
        BaseOperator(task_id="nothing")
    return [events, neighbours, many, on_demand, plain]

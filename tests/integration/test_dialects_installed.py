"""The example of the docs, installed as another package: it passes the suite, and everything takes it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_backfill.engine.destinations import ENTRY_POINT_GROUP, Target, dialects
from airflow_provider_backfill.engine.targets import target_from_url
from airflow_provider_backfill.hooks.backfill import BackfillHook
from airflow_provider_backfill.testing.ledgers import LedgerTests
from airflow_provider_backfill.testing.sessions import SessionTests
from tests.support.commands import SOURCE, WINDOW, Site
from tests.support.dialects import installed
from tests.support.pages import DOCS, blocks

PAGE = DOCS / "howto" / "dialects.md"


@pytest.fixture(scope="module", autouse=True)
def acme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    [project] = blocks(PAGE, "toml")
    [(name, reference)] = tomllib.loads(project)["project"]["entry-points"][ENTRY_POINT_GROUP].items()
    with installed(tmp_path_factory.mktemp("acme"), name, reference, acme_dialect=blocks(PAGE, "python")[0]):
        yield


@pytest.fixture
def acme_url(postgres_url: str) -> str:
    url = re.sub("^postgresql:", "acme:", postgres_url)
    with target_from_url(url, "web_raw").connect(5) as session:
        session.execute("CREATE TABLE public.backfill_locks AS SELECT generate_series(0, 999) AS slot")
    return url


class TestAcme(SessionTests, LedgerTests):
    @pytest.fixture
    def target(self, acme_url: str) -> Target:
        return target_from_url(acme_url, "web_raw")


def test_the_command_loads_to_it(acme_url: str, tmp_path: Path) -> None:
    target = target_from_url(acme_url, "web_raw")
    site = Site(home=tmp_path, target=target)
    place = ("--destination", acme_url, "--dataset", "web_raw")
    done = site.invoke("run", SOURCE, *WINDOW, *place)
    assert done.out[-1].endswith("5 completed, 0 skipped, 0 claimed elsewhere (5 chunks)")
    assert [number for number, _ in site.loaded()] == [1, 2, 3, 4, 5]
    with target.connect(5) as session:
        assert session.execute("SELECT DISTINCT destination FROM web_raw._dlt_ops_runs") == [("acme",)]


def test_an_airflow_connection_of_its_type_leads_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "acme", "host": "db", "login": "bob", "password": "p@ss", "schema": "web"}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(connection))
    target = BackfillHook(conn_id="warehouse", dataset_name="web_raw").target
    assert target.dialect is dialects()["acme"]
    assert target.credentials == "postgresql://bob:p%40ss@db/web"
    assert "p@ss" in target.secrets()

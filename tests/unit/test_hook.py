from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_backfill.exceptions import ConnectionTypeError, DestinationUnsupportedError, TargetError
from airflow_provider_backfill.hooks import backfill
from airflow_provider_backfill.hooks.backfill import BackfillHook
from airflow_provider_backfill.version_compat import AirflowNotFoundException

PASSWORD = "p@ss:w/rd%"


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A hook for an Airflow connection of these fields."""

    def make(dataset_name: str = "web_raw", **fields: Any) -> BackfillHook:
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(fields))
        return BackfillHook(conn_id="warehouse", dataset_name=dataset_name)

    return make


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the hook registers with Airflow's secrets masker."""
    secrets: list[str] = []
    monkeypatch.setattr(backfill, "mask_secret", secrets.append)
    return secrets


def test_postgres(connect: Any, masked: list[str]) -> None:
    target = connect(
        conn_type="postgres",
        host="db.example.org",
        port=5433,
        login="bob smith",
        password=PASSWORD,
        schema="my db",
        extra={"sslmode": "require", "iam": False, "cursor": "dictcursor"},
    ).target
    assert target.dialect.name == "postgres"
    assert target.credentials == (
        "postgresql://bob%20smith:p%40ss%3Aw%2Frd%25@db.example.org:5433/my%20db?sslmode=require"
    )
    assert {PASSWORD, "p%40ss%3Aw%2Frd%25"} <= set(masked)
    assert PASSWORD not in repr(target)
    assert target.redact(f"login {PASSWORD} of p%40ss%3Aw%2Frd%25 failed") == "login *** of *** failed"


def test_a_postgres_connection_by_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", "postgresql://bob:p%40ss@host/db?sslmode=require")
    target = BackfillHook(conn_id="warehouse", dataset_name="web_raw").target
    assert target.credentials == "postgresql://bob:p%40ss@host/db?sslmode=require"


def test_duckdb(connect: Any) -> None:
    assert connect(conn_type="duckdb", host="/data/web.duckdb").target.credentials == "/data/web.duckdb"
    assert connect(conn_type="duckdb", host="web.duckdb").target.credentials == os.path.abspath("web.duckdb")
    extra = {"database": "/data/extra.duckdb"}
    hook = connect(conn_type="duckdb", host="/data/web.duckdb", extra=extra)
    assert hook.target.credentials == "/data/extra.duckdb"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({}, "names no file"), ({"host": ":memory:"}, "keeps nothing"), ({"password": "token"}, "motherduck")],
)
def test_duckdb_without_a_file_is_refused(connect: Any, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(DestinationUnsupportedError, match=reason):
        _ = connect(conn_type="duckdb", **fields).target


@pytest.mark.parametrize("fields", [{"host": "warehouse"}, {"extra": {"destination": "warehouse"}}])
def test_a_dlt_destination_by_name(
    connect: Any, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DESTINATION__WAREHOUSE__DESTINATION_TYPE", "duckdb")
    monkeypatch.setenv("DESTINATION__WAREHOUSE__CREDENTIALS", str(tmp_path / "web.duckdb"))
    target = connect(conn_type="dlt", **fields).target
    assert target.credentials == str(tmp_path / "web.duckdb")


def test_a_dlt_connection_without_a_name_is_refused(connect: Any) -> None:
    with pytest.raises(TargetError, match="names no destination"):
        _ = connect(conn_type="dlt").target


def test_other_types_are_refused(connect: Any) -> None:
    with pytest.raises(ConnectionTypeError, match=r"type 'http'.* of type dlt, duckdb, postgres"):
        _ = connect(conn_type="http", host="example.org", password="hunter2").target
    # What dlt can load to, but not the ledger, is refused as everywhere.
    with pytest.raises(DestinationUnsupportedError, match=r"'snowflake' cannot carry .* lacks unique keys"):
        _ = connect(conn_type="snowflake", host="example.org").target


def test_the_dataset_name_is_the_physical_one(connect: Any) -> None:
    assert connect("Web  Raw", conn_type="duckdb", host="/data/web.duckdb").target.dataset_name == "web_raw"


def test_one_of_conn_id_and_destination(masked: list[str]) -> None:
    for arguments in ({}, {"conn_id": "warehouse", "destination": "duckdb:///web.duckdb"}):
        with pytest.raises(TargetError, match="conn_id and destination are given; pass one of them"):
            _ = BackfillHook(dataset_name="web_raw", **arguments).target
    target = BackfillHook(destination="postgresql://bob:hunter2@host/db", dataset_name="web_raw").target
    assert target.credentials == "postgresql://bob:hunter2@host/db"
    assert masked == ["hunter2"]


def test_a_missing_connection_keeps_airflows_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: object, conn_id: str) -> Any:
        raise AirflowNotFoundException(f"The conn_id `{conn_id}` isn't defined")

    monkeypatch.setattr(BackfillHook, "get_connection", missing)
    with pytest.raises(AirflowNotFoundException, match="nowhere"):
        _ = BackfillHook(conn_id="nowhere", dataset_name="web_raw").target

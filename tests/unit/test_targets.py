from __future__ import annotations

import os
import subprocess
import sys

import dlt
import pytest

from airflow_provider_backfill.engine.destinations import dialect_for, dialects
from airflow_provider_backfill.engine.destinations.features import LACKS
from airflow_provider_backfill.engine.destinations.libpq import libpq_uri
from airflow_provider_backfill.engine.targets import (
    physical_dataset_name,
    target_from_destination,
    target_from_path,
    target_from_url,
)
from airflow_provider_backfill.exceptions import DestinationUnsupportedError, TargetError

PASSWORD = "p@ss:w/rd% x+&?#é"
QUOTED = "p%40ss%3Aw%2Frd%25%20x%2B%26%3F%23%C3%A9"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("web_raw", "web_raw"),
        ("w2_9a", "w2_9a"),
        ("a__b", "a_b"),
        ("WebRaw", "web_raw"),
        ("web-raw", "web_raw"),
        ("2024", "_2024"),
    ],
)
def test_dataset_names_are_those_of_dlt(given: str, name: str) -> None:
    assert physical_dataset_name(given, dialect_for("duckdb")) == name
    assert physical_dataset_name(given, dialect_for("postgres")) == name


def test_a_long_dataset_name_is_cut_as_dlt_cuts_it() -> None:
    assert physical_dataset_name("x" * 70, dialect_for("duckdb")) == "x" * 70
    cut = physical_dataset_name("x" * 70, dialect_for("postgres"))
    assert len(cut) == 63
    assert cut != "x" * 63


@pytest.mark.parametrize("name", ["", "  ", None])
def test_an_empty_dataset_name_is_refused(name: str) -> None:
    with pytest.raises(TargetError, match=r"dataset_name .* is empty"):
        physical_dataset_name(name, dialect_for("duckdb"))


def test_urls() -> None:
    target = target_from_url("duckdb:///web.duckdb", "web_raw")
    assert (target.dialect.name, target.credentials) == ("duckdb", os.path.abspath("web.duckdb"))
    target = target_from_url("postgresql://bob@host/db", "web_raw")
    assert (target.dialect.name, target.credentials) == ("postgres", "postgresql://bob@host/db")


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_database_in_memory_is_refused(path: str) -> None:
    for make in (
        lambda: target_from_path(path, "web_raw"),
        lambda: target_from_url(f"duckdb:///{path}", "web_raw"),
    ):
        with pytest.raises(DestinationUnsupportedError, match="duckdb"):
            make()


EVERY = (
    "transactions that span datasets, unique keys that it enforces, locks that last until a transaction ends "
    "and a database that other processes can open"
)
NO_DATABASE = (
    "transactions that span datasets, unique keys that it enforces "
    "and locks that last until a transaction ends"
)
NONE_SHOWS = f"no dialect shows that it has {EVERY}"


@pytest.mark.parametrize(
    ("destination", "name", "why"),
    [
        ("mysql://host/db", "mysql", NONE_SHOWS),
        ("motherduck", "motherduck", NONE_SHOWS),
        ("snowflake", "snowflake", "it lacks unique keys that it enforces"),
        (
            dlt.destinations.filesystem("/srv"),
            "filesystem",
            f"it lacks {NO_DATABASE}",
        ),
        ("nonsense", "nonsense", f"{NONE_SHOWS} (dlt does not know it)"),
        (42, "int", f"{NONE_SHOWS} (it is no dlt destination)"),
        ("duckdb:///", "duckdb", "it lacks a database that other processes can open (it names no file)"),
    ],
)
def test_what_cannot_carry_the_ledger_is_refused_in_one_way(destination: object, name: str, why: str) -> None:
    with pytest.raises(DestinationUnsupportedError) as caught:
        target_from_destination(destination, "web_raw")  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"destination {name!r} cannot carry the ledger beside the data: {why}; "
        "use duckdb (a file) or postgres (see docs/refusals.md#destinationunsupportederror)"
    )


def test_what_dlt_is_said_to_lack_are_destinations_of_dlts() -> None:
    from dlt.common.destination.reference import DestinationReference

    known = {name.rpartition(".")[2] for name in DestinationReference.DESTINATIONS}
    # Some are younger than the oldest dlt that is supported.
    assert set(LACKS) - known <= {"fabric", "lance"}
    assert not set(LACKS) & set(dialects())


def test_a_destination_by_name_takes_its_credentials_from_dlt(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TargetError, match="DESTINATION__POSTGRES__CREDENTIALS"):
        target_from_destination("postgres", "web_raw")
    monkeypatch.setenv("DESTINATION__POSTGRES__CREDENTIALS", f"postgresql://bob:{QUOTED}@host/my%20db")
    target = target_from_destination("postgres", "web_raw")
    assert target.credentials.startswith(f"postgresql://bob:{QUOTED}@host:5432/my%20db?")
    assert PASSWORD in target.secrets()


def test_a_destination_of_the_users_own_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    path = os.path.join(tmp_path, "own.duckdb")
    monkeypatch.setenv("DESTINATION__WAREHOUSE__DESTINATION_TYPE", "duckdb")
    monkeypatch.setenv("DESTINATION__WAREHOUSE__CREDENTIALS", path)
    target = target_from_destination("warehouse", "web_raw")
    assert (target.dialect.name, target.credentials) == ("duckdb", path)


def test_destination_objects_and_functions(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "own.duckdb")
    for destination in (dlt.destinations.duckdb(path), lambda: dlt.destinations.duckdb(path)):
        target = target_from_destination(destination, "Web Raw")
        assert (target.credentials, target.dataset_name) == (path, "web_raw")
        assert target.destination is not None


def test_a_destination_may_keep_its_dataset_names(tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "own.duckdb")
    destination = dlt.destinations.duckdb(path, enable_dataset_name_normalization=False)
    assert target_from_destination(destination, "Web Raw").dataset_name == "Web Raw"


def test_an_open_connection_is_refused() -> None:
    import duckdb

    with duckdb.connect() as connection, pytest.raises(DestinationUnsupportedError, match="open connection"):
        target_from_destination(dlt.destinations.duckdb(connection), "web_raw")


def test_what_dlt_cannot_read_does_not_show_the_password() -> None:
    with pytest.raises(TargetError) as caught:
        target_from_destination(dlt.destinations.postgres("nonsense:hunter2@host/db"), "web_raw")
    assert "hunter2" not in str(caught.value)


def test_every_part_of_a_uri_is_quoted() -> None:
    uri = libpq_uri(
        user="a b", password=PASSWORD, host="::1", port=1, database="d/b", options={"application_name": "x y"}
    )
    assert uri == f"postgresql://a%20b:{QUOTED}@[::1]:1/d%2Fb?application_name=x%20y"
    assert libpq_uri(user="bob", host="/run/pg") == "postgresql://bob@%2Frun%2Fpg/bob"
    assert libpq_uri() == "postgresql://localhost/"


def test_a_url_and_a_plain_name_need_no_dlt() -> None:
    code = (
        "import sys; from airflow_provider_backfill.engine.targets import target_from_destination as t;"
        "t('postgresql://u:p@h/db', 'web_raw'); t('duckdb:///x.duckdb', 'web_raw');"
        "print(sorted({'dlt', 'duckdb', 'psycopg2', 'airflow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("credentials", "address"),
    [
        ("postgresql://me:s3cret@db.example.com:6432/shop", ("postgres://db.example.com:6432", "shop")),
        ("postgresql://me@db/shop?sslmode=require", ("postgres://db:5432", "shop")),
        ("postgresql://me@one:1,two:2/shop", ("postgres://one:1", "shop")),
        ("postgresql://me@[2001:db8::1]/shop", ("postgres://[2001:db8::1]:5432", "shop")),
        ("postgresql://me@%2Fvar%2Frun/shop", ("postgres://localhost:5432", "shop")),
        ("postgresql:///", ("postgres://localhost:5432", "")),
    ],
)
def test_a_postgres_is_told_by_its_server(credentials: str, address: tuple[str, str]) -> None:
    assert dialect_for("postgres").address(credentials) == address


def test_a_duckdb_is_told_by_its_file() -> None:
    assert dialect_for("duckdb").address("/data/web.raw.duckdb") == ("duckdb:///data/web.raw.duckdb", "web")

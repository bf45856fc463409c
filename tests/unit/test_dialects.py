"""Dialects of other packages, found by their entry points."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from airflow_provider_backfill.engine.destinations import dialect_for, dialect_for_url, dialects
from airflow_provider_backfill.exceptions import DestinationUnsupportedError, DialectError
from tests.support.dialects import installed

GOOD = """
from airflow_provider_backfill.engine.destinations.postgres import Postgres

class Acme(Postgres):
    name = "acme"
    schemes = ("acme", "acmes")
"""


def test_a_dialect_of_another_package_is_found_by_name_and_url(tmp_path: Path) -> None:
    with installed(tmp_path, "acme", "acme_dialect:Acme", acme_dialect=GOOD):
        acme = dialect_for("acme")
        assert type(acme).__name__ == "Acme"
        assert dialect_for_url("acmes+tls://host/db") is acme
        with pytest.raises(DestinationUnsupportedError, match=r"use duckdb \(a file\), postgres or acme \("):
            dialect_for("mssql")
    assert set(dialects()) == {"duckdb", "postgres"}
    with pytest.raises(DestinationUnsupportedError):
        dialect_for("acme")


def test_whoever_uses_ours_does_not_wait_for_those_of_other_packages(tmp_path: Path) -> None:
    with installed(tmp_path, "acme", "acme_dialect:Acme", acme_dialect="raise AssertionError"):
        assert dialect_for("duckdb").name == "duckdb"
        assert dialect_for_url("postgresql://host/db").name == "postgres"
        assert "acme_dialect" not in sys.modules
        with pytest.raises(DialectError):
            dialect_for("acme")


@pytest.mark.parametrize(
    ("credentials", "passwords"),
    [
        ("acme://u:p%40ss@host/db", ["p%40ss", "p@ss"]),
        ("acme://host/db", []),
        ("/tmp/file", []),
        ("acme://[", []),
    ],
)
def test_the_password_of_a_url_is_known_without_being_told(
    tmp_path: Path, credentials: str, passwords: list[str]
) -> None:
    text = GOOD + "    passwords = Postgres.__mro__[1].passwords\n"
    with installed(tmp_path, "acme", "acme_dialect:Acme", acme_dialect=text):
        assert list(dialect_for("acme").passwords(credentials)) == passwords


def test_none_takes_the_place_of_ours(tmp_path: Path) -> None:
    with installed(tmp_path, "postgres", "acme_dialect:Acme", acme_dialect=GOOD):
        assert type(dialect_for("postgres")).__name__ == "Postgres"


@pytest.mark.parametrize(
    ("reference", "text", "reason"),
    [
        ("acme_dialect:Acme", "import no_such_driver", "No module named 'no_such_driver'"),
        ("acme_dialect:Acme", "", "has no attribute 'Acme'"),
        ("acme_dialect:Acme", "Acme = object()", "it is no subclass of .*Dialect"),
        (
            "acme_dialect:Acme",
            "from airflow_provider_backfill.engine.destinations import Dialect\nclass Acme(Dialect): ...",
            "it lacks build_destination, connect, .*, name, schemes, fragments, session_class, row_id",
        ),
        ("acme_dialect:Acme", GOOD.replace('"acme"\n', '"amce"\n'), "it calls itself 'amce'"),
        ("acme_dialect:Acme", f"{GOOD}    def __init__(self): 1 / 0", "ZeroDivisionError"),
        ("acme_dialect:Acme", "raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_one_that_cannot_be_used_is_left_out_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reference: str, text: str, reason: str
) -> None:
    with installed(tmp_path, "acme", reference, acme_dialect=text):
        assert set(dialects()) == {"duckdb", "postgres"}
        [warning] = [record.getMessage() for record in caplog.records]
        assert warning.startswith("the dialect 'acme' of acme-dialect 1.0 cannot be used: ")
        for ask in (lambda: dialect_for("acme"), lambda: dialect_for_url("acme://host/db")):
            with pytest.raises(DialectError, match=reason):
                ask()

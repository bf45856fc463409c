"""Assertions as plain data."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from airflow_provider_backfill.engine.gates import (
    AcceptedValues,
    Assertion,
    CursorWithinChunk,
    MaxRows,
    MinRows,
    NotNullColumns,
    PythonPredicate,
    SqlPredicate,
    UniqueColumns,
    parse_assertions,
)
from airflow_provider_backfill.exceptions import GateError

pytestmark = pytest.mark.unit

KINDS: list[tuple[dict[str, Any], Assertion]] = [
    ({"min_rows_per_load": 1}, MinRows(rows=1)),
    ({"max_rows_per_load": 5, "on_failure": "warn"}, MaxRows(rows=5, on_failure="warn")),
    (
        {"unique_columns": ["a", "b"], "on_failure": "quarantine"},
        UniqueColumns(columns=("a", "b"), on_failure="quarantine"),
    ),
    ({"not_null_columns": ["a"]}, NotNullColumns(columns=("a",))),
    ({"accepted_values": {"a": ["x", 1, True]}}, AcceptedValues(column="a", values=("x", 1, True))),
    ({"cursor_within_chunk": True}, CursorWithinChunk()),
    ({"cursor_within_chunk": "at"}, CursorWithinChunk(column="at")),
    ({"sql": "a > 0"}, SqlPredicate(sql="a > 0")),
    ({"python": "checks:sane"}, PythonPredicate(reference="checks:sane")),
]


@pytest.mark.parametrize(("given", "expected"), KINDS, ids=[str(made) for _, made in KINDS])
def test_each_kind_is_read_and_written(given: dict[str, Any], expected: Assertion) -> None:
    assert parse_assertions({"events": [given]}) == {"events": (expected,)}
    assert {expected.name: expected.value} == {name: given[name] for name in given if name != "on_failure"}
    # Worker processes and sets of them.
    assert pickle.loads(pickle.dumps(expected)) == expected
    assert hash(expected) == hash(parse_assertions([given])["*"][0])


@pytest.mark.parametrize("nothing", [None, "", "  ", {}, []])
def test_none(nothing: Any) -> None:
    assert parse_assertions(nothing) == {}


def test_a_list_is_for_all_resources_and_text_is_json() -> None:
    listed = [given for given, _ in KINDS]
    expected = {"*": tuple(made for _, made in KINDS)}
    assert parse_assertions(listed) == parse_assertions(json.dumps(listed)) == expected
    assert parse_assertions({"*": [made for _, made in KINDS]}) == expected
    assert parse_assertions({"events": listed[0]}) == {"events": (KINDS[0][1],)}


def test_what_templates_and_people_write() -> None:
    given = [{"min_rows_per_load": " 12 "}, {"unique_columns": "a, b"}, {"accepted_values": {"a": "x"}}]
    assert parse_assertions(given)["*"] == (
        MinRows(rows=12),
        UniqueColumns(columns=("a", "b")),
        AcceptedValues(column="a", values=("x",)),
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("{", "is no JSON: "),
        ("[1]", "assertion 1 is no dict; pass a dict with one of min_rows_per_load, "),
        (
            {"events": "unique"},
            "assertion {'events': 'unique'} is no list; pass a list of assertions for each",
        ),
        ([{}], "has 0 names; pass one of min_rows_per_load, "),
        ([{"unique": "id"}], "assertion {'unique': 'id'} is unknown; pass one of min_rows_per_load, "),
        ([{"sql": "a", "python": "b:c"}], "has 2 names"),
        (
            [{"sql": "a", "on_failure": "drop"}],
            "'sql' has on_failure 'drop'; pass fail or quarantine or warn",
        ),
        ([{"min_rows_per_load": 1, "on_failure": "quarantine"}], "'min_rows_per_load' cannot quarantine, as"),
        ([{"max_rows_per_load": 1, "on_failure": "quarantine"}], "pass on_failure 'fail' or 'warn'"),
        (
            [{"min_rows_per_load": -1}],
            "{'min_rows_per_load': -1} cannot be used; pass a whole number, at least",
        ),
        ([{"min_rows_per_load": "many"}], "pass a whole number"),
        ([{"min_rows_per_load": True}], "pass a whole number"),
        ([{"unique_columns": []}], "pass the names of columns, e.g. ['id']"),
        ([{"not_null_columns": ["a", ""]}], "pass the names of columns"),
        ([{"not_null_columns": 3}], "pass the names of columns"),
        ([{"accepted_values": ["a"]}], "pass a column and its values, e.g. {'status': ['open', 'closed']}"),
        ([{"accepted_values": {"a": []}}], "pass texts, numbers or booleans"),
        ([{"accepted_values": {"a": [None]}}], "a null passes anyway"),
        ([{"accepted_values": {"": ["a"]}}], "pass the name of a column"),
        ([{"cursor_within_chunk": False}], "pass the name of a column, or true for the cursor"),
        ([{"sql": " "}], "pass a predicate over the columns of a row"),
        ([{"python": "checks.sane"}], "pass module:function"),
    ],
)
def test_what_is_no_assertion_is_refused(given: Any, message: str) -> None:
    with pytest.raises(GateError) as refused:
        parse_assertions(given)
    assert message in str(refused.value)

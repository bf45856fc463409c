"""What a look at the source refuses. Imports dlt."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import dlt
import pytest
from dlt.extract.incremental import Incremental
from dlt.sources import incremental

from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.preflight import RULES, preflight
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.exceptions import PreflightError
from tests.unit.test_source_cursors import FORMS, annotated, below

pytestmark = pytest.mark.unit

#: Older versions of dlt let the chunk's bounds come before allow_external_schedulers=False.
OBEYED = Incremental.allow_external_schedulers is None


def cursor(**options):
    return incremental("at", **{"initial_value": datetime(2026, 1, 1, tzinfo=UTC), **options})


def views(name="views", cursor=cursor(), **hints):  # noqa: B008
    """A resource with a cursor."""

    @dlt.resource(name=name, **hints)
    def rows(at=cursor):
        yield []

    return rows


def lookup(name="lookup", **hints):
    """A resource without one."""

    @dlt.resource(name=name, **hints)
    def rows():
        yield []

    return rows


def findings(*resources, only=()):
    """Rule and resource of each finding about a source of these resources."""
    source = dlt.source(lambda: list(resources), name="shop")
    try:
        preflight(SourceSpec(reference=source, resources=only).load())
    except PreflightError as error:
        return [(finding.rule, finding.resource) for finding in error.findings]
    return []


def test_a_resource_with_a_cursor_that_appends_passes():
    assert findings(views()) == []
    assert findings(views(write_disposition="append", primary_key="id")) == []


# --- cursors


@pytest.mark.parametrize("form", FORMS)
def test_a_cursor_is_found_however_it_was_declared(form):
    assert findings(form()) == []
    assert findings(below(form())) == []


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"initial_value": None}, "cursor-type"),
        ({"initial_value": "2020-01-01"}, "cursor-type"),
        ({"range_end": "closed"}, "cursor-range"),
        ({"range_start": "open"}, "cursor-range"),
        ({"last_value_func": min}, "last-value-func"),
        ({"on_cursor_value_missing": "include"}, "missing-cursor-values"),
    ],
)
def test_a_cursor_that_loads_other_rows_than_the_chunks_is_refused(options, rule):
    parent = views(cursor=cursor(**options))
    assert findings(parent) == [(rule, "views")]
    assert findings(below(parent)) == [(rule, "below_views")]


@pytest.mark.parametrize(
    ("initial", "late"),
    [
        (datetime(2024, 1, 1, 23, tzinfo=UTC), False),
        (datetime(2024, 1, 2, tzinfo=UTC), True),
        (datetime(2024, 1, 2), True),  # noqa: DTZ001
        (date(2024, 1, 1), False),
        (date(2024, 1, 2), True),
    ],
)
def test_a_history_that_begins_behind_the_first_chunk_is_refused(initial, late):
    source = SourceSpec(reference=views(cursor=cursor(initial_value=initial))).load()
    first = Interval(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC))
    if late:
        with pytest.raises(PreflightError, match=r"refusals\.md#initial-value"):
            preflight(source, first)
    else:
        preflight(source, first)


def no_argument_value():
    @dlt.resource(name="lookup")
    @annotated
    def rows(at=None):
        yield []

    return rows


@pytest.mark.parametrize(
    "resource",
    [
        lookup(),
        no_argument_value(),
        no_argument_value()(),
        lookup().apply_hints(primary_key="at"),
        dlt.resource([{"at": 1}], name="lookup"),
        dlt.transformer(lambda item: item, data_from=lookup("parent"), name="lookup"),
    ],
    ids=["none", "none given", "called with none", "other hints", "data", "transformer"],
)
def test_a_resource_without_a_cursor_is_refused(resource):
    assert findings(resource) == [("no-cursor", "lookup")]


def test_a_cursor_from_dlts_configuration_is_a_cursor():
    @dlt.resource(name="views")
    @annotated
    def rows(at=dlt.config.value):
        yield []

    assert findings(rows) == []


def test_a_transformer_is_bounded_by_its_parent_even_if_that_is_not_loaded():
    parent = views()
    child = dlt.transformer(lambda item: item, data_from=parent, name="child")
    grandchild = dlt.transformer(lambda item: item, data_from=child, name="grandchild")
    assert findings(parent, child, grandchild) == []
    assert findings(parent, child, grandchild, only=("grandchild",)) == []


def test_a_transformer_with_a_cursor_of_its_own_needs_none_in_its_parent():
    @dlt.transformer(data_from=lookup(), name="child")
    def child(item, at=cursor()):  # noqa: B008
        yield item

    assert findings(child) == []


@pytest.mark.skipif(not OBEYED, reason="this dlt lets the chunk's bounds come first")
@pytest.mark.parametrize("form", ["default", "hint", "passed", "merged", "parent"])
def test_a_cursor_that_takes_no_bounds_is_refused_however_it_was_declared(form):
    off: dict[str, Any] = {"allow_external_schedulers": False}
    if form == "default":
        resource = views(cursor=cursor(**off))
    elif form == "hint":
        resource = lookup("views").apply_hints(incremental=cursor(**off))
    elif form == "passed":

        @dlt.resource(name="views")
        @annotated
        def rows(at=None):
            yield []

        resource = rows(at=cursor(**off))
    elif form == "merged":
        resource = views()(at=incremental(**off))
    else:
        parent = views("parent", cursor=cursor(**off))
        resource = dlt.transformer(lambda item: item, data_from=parent, name="views")
    assert findings(resource) == [("not-schedulable", "views")]


@pytest.mark.parametrize("allowed", [True, None])
def test_a_cursor_that_takes_bounds_passes(allowed):
    assert findings(views(cursor=cursor(allow_external_schedulers=allowed))) == []


# --- write dispositions


@pytest.mark.parametrize(
    "disposition", ["replace", {"disposition": "replace", "strategy": "insert-from-staging"}]
)
def test_replace_is_refused(disposition):
    assert findings(views(write_disposition=disposition, primary_key="id")) == [("replace", "views")]


def test_scd2_is_refused_and_needs_no_key():
    scd2 = {"disposition": "merge", "strategy": "scd2"}
    assert findings(views(write_disposition=scd2)) == [("scd2", "views")]
    assert findings(views(write_disposition=scd2, primary_key="id")) == [("scd2", "views")]


@pytest.mark.parametrize("disposition", ["merge", {"disposition": "merge", "strategy": "delete-insert"}])
def test_a_merge_without_a_key_is_refused(disposition):
    assert findings(views(write_disposition=disposition)) == [("keyless-merge", "views")]


@pytest.mark.parametrize(
    "key",
    [
        {"primary_key": "id"},
        {"primary_key": ["id", "region"]},
        {"merge_key": "day"},
        {"columns": {"id": {"primary_key": True}}},
        {"columns": [{"name": "id", "merge_key": True}]},
    ],
)
@pytest.mark.parametrize("strategy", [None, "delete-insert", "upsert"])
def test_a_merge_with_a_key_passes(key, strategy):
    disposition = {"disposition": "merge", "strategy": strategy} if strategy else "merge"
    assert findings(views(write_disposition=disposition, **key)) == []


def test_columns_without_a_key_are_no_key():
    assert findings(views(write_disposition="merge", columns={"id": {"data_type": "bigint"}})) == [
        ("keyless-merge", "views")
    ]


def test_hints_that_are_set_later_count():
    resource = views().apply_hints(write_disposition="replace")
    assert findings(resource) == [("replace", "views")]
    assert findings(resource.apply_hints(write_disposition="merge", primary_key="id")) == []


# --- arguments


def test_a_resource_that_is_not_called_yet_is_refused():
    @dlt.resource(name="views")
    def rows(region, at=cursor()):  # noqa: B008
        yield []

    assert findings(rows) == [("unbound", "views")]
    assert findings(rows("eu")) == []


def test_a_transformer_and_its_parent_are_looked_at_and_said_once():
    @dlt.resource(name="parent")
    def parent(region, at=cursor()):  # noqa: B008
        yield []

    @dlt.transformer(data_from=parent, name="child")
    def child(item, size):
        yield item

    assert findings(child) == [("unbound", "child"), ("unbound", "parent")]
    assert findings(parent, child(size=3)) == [("unbound", "parent")]


# --- all at once


def test_every_finding_is_said_and_only_of_what_is_selected():
    resources = [
        lookup("a", write_disposition="replace"),
        views("b", write_disposition="merge"),
        views("c"),
        lookup("d"),
    ]
    assert findings(*resources) == [
        ("no-cursor", "a"),
        ("replace", "a"),
        ("keyless-merge", "b"),
        ("no-cursor", "d"),
    ]
    assert findings(*resources, only=("b", "c")) == [("keyless-merge", "b")]
    assert findings(*resources, only=("c",)) == []


def test_the_message_has_a_line_for_each_finding():
    source = dlt.source(lambda: [lookup("a", write_disposition="replace")], name="shop")()
    with pytest.raises(PreflightError) as caught:
        preflight(source)
    assert caught.value.exit_code == 2
    assert str(caught.value) == (
        "refused for 2 reasons:\n"
        "- resource 'a': it has no incremental cursor, so every chunk would load all of its rows; "
        "declare one with its type, e.g. dlt.sources.incremental[datetime]('updated_at'), "
        "or leave the resource out (see docs/refusals.md#no-cursor)\n"
        "- resource 'a': its write disposition is 'replace', so each chunk would delete the ones before it; "
        "use 'append', or 'merge' with a primary or merge key (see docs/refusals.md#replace)"
    )


def test_looking_at_a_source_changes_nothing():
    made = dlt.source(lambda: [views()], name="shop")()
    preflight(made)
    preflight(made)
    assert made.resources["views"].incremental.incremental is None
    assert list(made) == []
    assert len(RULES) == len(set(RULES))

"""Chunks that one process extracts one after the other, however the cursor was declared. Imports dlt.

dlt leaves the bounds of an extraction in the cursor, and silently clips the next one to them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import dlt
import pytest
from dlt.common.configuration.container import Container
from dlt.extract.incremental.context import TimeIntervalContext
from dlt.sources import incremental

from airflow_provider_backfill.engine.source import SourceSpec

pytestmark = pytest.mark.unit


def day(number):
    return datetime(2026, 1, number, tzinfo=UTC)


ROWS = [{"id": number, "at": day(number) + timedelta(hours=1)} for number in range(1, 6)]


def cursor():
    return incremental("at", initial_value=day(1))


def annotated(function):
    """As in a module without postponed annotations, which dlt cannot read."""
    function.__annotations__["at"] = incremental[datetime]
    return function


def default():
    @dlt.resource
    def rows(at=cursor()):  # noqa: B008
        yield ROWS

    return rows


def typed():
    @dlt.resource
    @annotated
    def rows(at=incremental("at")):
        yield ROWS

    return rows


def called():
    @dlt.resource
    def rows(region, at=cursor()):  # noqa: B008
        yield ROWS

    return rows("eu")


def passed():
    @dlt.resource
    @annotated
    def rows(at=None):
        yield ROWS

    return rows(at=cursor())


def data():
    return dlt.resource(ROWS, name="rows", incremental=cursor())


def decorator():
    @dlt.resource(incremental=cursor())
    def rows():
        yield ROWS

    return rows


def decorator_and_argument():
    @dlt.resource(incremental=cursor())
    @annotated
    def rows(at=None):
        yield ROWS

    return rows


def hint():
    @dlt.resource
    def rows():
        yield ROWS

    return rows.apply_hints(incremental=cursor())


def hint_as_dict():
    @dlt.resource
    def rows():
        yield ROWS

    return rows.apply_hints(incremental={"cursor_path": "at", "initial_value": day(1)})


def hint_and_argument():
    @dlt.resource
    @annotated
    def rows(at=None):
        yield ROWS

    return rows.apply_hints(incremental=cursor())


def hint_and_default():
    @dlt.resource
    def rows(at=cursor()):  # noqa: B008
        yield ROWS

    return rows.apply_hints(incremental=cursor())


def hint_and_called():
    @dlt.resource
    @annotated
    def rows(region, at=None):
        yield ROWS

    return rows.apply_hints(incremental=cursor())("eu")


def step():
    @dlt.resource
    def rows():
        yield ROWS

    return rows.add_step(cursor())


FORMS = [
    default,
    typed,
    called,
    passed,
    data,
    decorator,
    decorator_and_argument,
    hint,
    hint_as_dict,
    hint_and_argument,
    hint_and_default,
    hint_and_called,
    step,
]


def below(parent):
    """A transformer of ``parent``, which has no cursor of its own."""

    @dlt.transformer(data_from=parent, name=f"below_{parent.name}")
    def rows(items):
        yield items

    return rows


def chunks(spec, numbers=(1, 2, 4, 3, 1)):
    """The rows of each day, extracted in this order."""
    found = []
    for number in numbers:
        source = spec.load()
        bounds = TimeIntervalContext(interval=(day(number), day(number + 1)), allow_external_schedulers=True)
        with Container().injectable_context(bounds):
            found.append([row["id"] for row in source])
    return found


ONE_EACH = [[1], [2], [4], [3], [1]]


@pytest.mark.parametrize("form", FORMS)
def test_a_resource_gives_each_chunk_its_rows(form):
    assert chunks(SourceSpec(reference=form())) == ONE_EACH


# Where a hint meets an argument, dlt keeps the cursor in the function itself, which clones share.
@pytest.mark.parametrize("form", [default, typed, called, passed, data, decorator, hint, hint_as_dict, step])
def test_the_users_own_resource_stays_as_it_was_for_a_pipeline_that_loads_forward(form):
    resource = form()
    chunks(SourceSpec(reference=resource), (2, 3))
    assert [row["id"] for row in resource] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("form", FORMS)
def test_a_transformer_gives_each_chunk_the_rows_of_its_parent(form):
    assert chunks(SourceSpec(reference=below(form()))) == ONE_EACH


@pytest.mark.parametrize("form", FORMS)
def test_a_source_that_is_made_already_gives_each_chunk_its_rows(form):
    parent = form()
    made = dlt.source(lambda: [parent, below(parent)], name="made")()
    assert chunks(SourceSpec(reference=made)) == [one * 2 for one in ONE_EACH]
    assert chunks(SourceSpec(reference=made, resources=(f"below_{parent.name}",)), (5, 1)) == [[5], [1]]


def test_a_source_function_that_returns_resources_of_its_module_gives_each_chunk_its_rows():
    resource = hint()
    assert chunks(SourceSpec(reference=dlt.source(lambda: resource, name="shop"))) == ONE_EACH

"""What plain dlt does with a chunk's bounds, and that the rule of that name finds it. Imports dlt."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Optional

import dlt
import pytest
from dlt.common.configuration.container import Container
from dlt.common.exceptions import DltException
from dlt.extract.incremental import Incremental
from dlt.extract.incremental.context import TimeIntervalContext
from dlt.sources import incremental

from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.preflight import examine, look
from airflow_provider_backfill.engine.source import SourceSpec

pytestmark = pytest.mark.unit

OBEYED = Incremental.allow_external_schedulers is None
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)


def day(number, hour=0):
    return datetime(2024, 1, number, hour, tzinfo=UTC)


#: A row at noon of each of the first four days.
NOONS = [day(number, 12) for number in range(1, 5)]
#: The days from the 1st to the 3rd, by 1d.
DAYS = [Interval(day(number), day(number + 1)) for number in (1, 2)]


def resource_of(cursor, values):
    @dlt.resource(name="rows")
    def rows(at=cursor):
        yield [{"at": value} for value in values]

    return rows


def loaded(make, chunks=DAYS):
    """The cursor values that plain dlt gives each chunk. It leaves bounds behind, so each has a resource."""
    found = []
    for chunk in chunks:
        bounds = TimeIntervalContext(interval=chunk.instants, allow_external_schedulers=True)
        with Container().injectable_context(bounds):
            found.append([row["at"] for row in make()])
    return found


def examined(resource, chunks=DAYS, timezone="UTC", **formats):
    spec = SourceSpec(reference=resource, cursor_format=formats)
    report = examine(spec, spec.load(), chunks, timezone)
    return [finding.rule for finding in report.findings]


def test_the_rows_of_a_chunk_are_its_own_when_nothing_is_wrong():
    def fresh():
        return resource_of(incremental("at", initial_value=EPOCH), NOONS)

    assert loaded(fresh) == [[NOONS[0]], [NOONS[1]]]
    assert examined(fresh()) == []


def epoch(scale, kind=int):
    return [kind(noon.timestamp() * scale) for noon in NOONS]


@pytest.mark.parametrize(
    ("values", "initial", "rows"),
    [
        (epoch(1), 0, 1),
        (epoch(1_000), 0, 0),
        (epoch(1_000_000), 0, 0),
        (epoch(1, float), 0.0, 1),
        (epoch(1_000, float), 0.0, 0),
        ([1, 2, 3], 0, 0),
    ],
    ids=["seconds", "milliseconds", "microseconds", "float seconds", "float milliseconds", "ids"],
)
def test_a_number_without_a_unit_is_taken_for_seconds(values, initial, rows):
    resource = resource_of(incremental("at", initial_value=initial), values)
    assert [len(chunk) for chunk in loaded(lambda: resource, DAYS[:1])] == [rows]
    assert examined(resource) == ["cursor-unit"]
    assert examined(resource, chunks=()) == ["cursor-unit"]


@pytest.mark.parametrize("name", ["rows", "*"])
def test_a_number_with_a_format_is_bound_by_it(name):
    resource = resource_of(incremental("at", initial_value=0), epoch(1_000))
    assert examined(resource, **{name: "epoch_ms"}) == []
    assert look(SourceSpec(reference=resource).load(), DAYS, formats={name: "epoch_ms"}).findings == ()
    [finding] = look(SourceSpec(reference=resource).load(), DAYS, formats={"other": "epoch_ms"}).findings
    assert "cursor_format" in finding.remedy


def test_whole_numbers_in_a_window_of_whole_numbers_need_no_unit():
    resource = resource_of(incremental("at", initial_value=0), [1, 2, 3])
    assert examined(resource, chunks=[Interval(0, 10), Interval(10, 20)]) == []


@pytest.mark.parametrize(
    ("cursor", "values"),
    [
        (incremental("at", initial_value="2023"), ["2024-01-01T12:00:00Z"]),
        (incremental("at"), NOONS),
        (incremental("at", initial_value=Decimal(0)), [Decimal(1)]),
        (incremental("at", initial_value=False), [True]),
        (incremental[Optional[datetime]]("at"), NOONS),  # noqa: UP045
    ],
    ids=["text", "untyped", "decimal", "bool", "optional"],
)
def test_a_type_that_is_no_time_fails_in_every_chunk(cursor, values):
    resource = resource_of(cursor, values)
    with pytest.raises((DltException, TypeError)):
        loaded(lambda: resource, DAYS[:1])
    assert examined(resource, chunks=()) == ["cursor-type"]


def test_a_text_is_offered_a_format_and_bound_by_it():
    resource = resource_of(incremental("at", initial_value="2023"), ["2024-01-01T12:00:00Z"])
    source = SourceSpec(reference=resource).load()
    [finding] = look(source).findings
    assert "cursor_format" in finding.remedy
    assert look(source, formats={"*": "%Y-%m-%dT%H:%M:%SZ"}).findings == ()


SIX_HOURS = [Interval(day(1, hour), day(1, hour + 6)) for hour in (0, 6, 12)]


@pytest.mark.parametrize(
    ("chunks", "rows"), [(SIX_HOURS, 0), ([Interval(day(1, 12), day(2, 12))], 1)], ids=["6h", "noon to noon"]
)
def test_a_date_has_no_time_of_day(chunks, rows):
    dates = [noon.date() for noon in NOONS]

    def fresh():
        return resource_of(incremental("at", initial_value=date(2020, 1, 1)), dates)

    assert sum(map(len, loaded(fresh, chunks))) == rows
    assert examined(fresh(), chunks) == ["cursor-format"]
    assert examined(fresh()) == []


def test_days_of_a_date_are_those_of_the_windows_time_zone():
    resource = resource_of(incremental("at", initial_value=date(2020, 1, 1)), [])
    berlin = [Interval(day(1, 23), day(2, 23))]
    assert examined(resource, berlin, "Europe/Berlin") == []
    assert examined(resource, berlin, "UTC") == ["cursor-format"]


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"last_value_func": min}, "last-value-func"),
        ({"initial_value": day(3)}, "initial-value"),
        ({"end_value": day(1)}, "end-value"),
    ],
)
def test_a_cursor_that_dlt_clips_to_nothing_is_refused(options, rule):
    def fresh():
        return resource_of(incremental("at", **{"initial_value": EPOCH, **options}), NOONS)

    assert loaded(fresh, DAYS[1:]) == [[]]
    assert examined(fresh(), DAYS[1:]) == [rule]


@pytest.mark.parametrize("end", [datetime(2024, 1, 2, tzinfo=UTC), datetime(2024, 1, 2), date(2024, 1, 2)])  # noqa: DTZ001
def test_a_chunk_behind_the_end_is_refused_and_one_before_it_is_not(end):
    resource = resource_of(incremental("at", initial_value=EPOCH, end_value=end), NOONS)
    assert examined(resource) == ["end-value"]
    assert examined(resource, DAYS[:1]) == []
    assert examined(resource, chunks=()) == []


def test_a_row_without_a_cursor_value_is_in_every_chunk():
    def fresh():
        cursor = incremental("at", initial_value=EPOCH, on_cursor_value_missing="include")
        return resource_of(cursor, [None, NOONS[0]])

    assert loaded(fresh) == [[None, NOONS[0]], [None]]
    assert examined(fresh()) == ["missing-cursor-values"]


@pytest.mark.parametrize(
    ("options", "rows"), [({"range_end": "closed"}, [1, 1]), ({"range_start": "open"}, [0, 0])]
)
def test_a_row_on_the_bound_is_in_two_chunks_or_in_none(options, rows):
    def fresh():
        return resource_of(incremental("at", initial_value=EPOCH, **options), [day(2)])

    assert list(map(len, loaded(fresh))) == rows
    assert examined(fresh()) == ["cursor-range"]


@pytest.mark.skipif(not OBEYED, reason="this dlt lets the chunk's bounds come first")
@pytest.mark.parametrize("form", ["cursor", "wrapper"])
def test_a_cursor_that_takes_no_bounds_loads_everything_in_every_chunk(form):
    allowed: dict[str, Any] = {"allow_external_schedulers": False} if form == "cursor" else {}

    def fresh():
        resource = resource_of(incremental("at", initial_value=EPOCH, **allowed), NOONS)
        if form == "wrapper":
            resource.incremental.allow_external_schedulers = False
        return resource

    assert list(map(len, loaded(fresh))) == [4, 4]
    assert examined(fresh()) == ["not-schedulable"]


def test_a_lag_is_ignored_and_only_warned_of():
    def fresh(**more):
        return resource_of(incremental("at", initial_value=EPOCH, **more), NOONS)

    assert loaded(lambda: fresh(lag=86_400.0)) == loaded(fresh) == [[NOONS[0]], [NOONS[1]]]
    report = look(SourceSpec(reference=fresh(lag=86_400.0)).load(), DAYS)
    assert report.findings == ()
    [warning] = report.warnings
    assert (warning.rule, warning.resource) == ("lag", "rows")
    assert "lag=86400" in warning.message
    assert look(SourceSpec(reference=fresh()).load(), DAYS).warnings == ()


# --- more than one cursor


def test_a_step_bounds_a_resource_whose_argument_is_empty():
    def fresh():
        def rows(at=None):
            yield [{"at": noon} for noon in NOONS]

        rows.__annotations__["at"] = Optional[incremental[datetime]]  # noqa: UP045
        return dlt.resource(rows, name="rows").add_step(incremental("at", initial_value=EPOCH))

    assert loaded(fresh) == [[NOONS[0]], [NOONS[1]]]
    assert examined(fresh()) == []


def test_a_second_cursor_that_loads_nothing_is_refused():
    def fresh():
        resource = resource_of(incremental("at", initial_value=EPOCH), NOONS)
        return resource.add_step(incremental("at", initial_value=EPOCH, last_value_func=min))

    assert loaded(fresh) == [[], []]
    assert examined(fresh()) == ["last-value-func"]


def child_of(parent, cursor):
    @dlt.transformer(data_from=parent, name="child")
    def child(items, at=cursor):
        yield [{"at": noon} for noon in NOONS]

    return child


@pytest.mark.parametrize(("formats", "rules"), [({}, ["cursor-unit"]), ({"rows": "epoch_s"}, [])])
def test_a_parent_whose_cursor_loads_nothing_leaves_nothing_for_the_child(formats, rules):
    def family():
        parent = resource_of(incremental("at", initial_value=0), [1, 2])
        return parent, child_of(parent, incremental("at", initial_value=EPOCH))

    assert loaded(lambda: family()[1]) == [[], []]
    source = dlt.source(lambda: list(family()), name="family")
    spec = SourceSpec(reference=source, resources=("child",), cursor_format=formats)
    report = examine(spec, spec.load(), DAYS)
    assert [finding.rule for finding in report.findings] == rules


def test_a_childs_own_cursor_is_looked_at_beside_its_parents():
    parent = resource_of(incremental("at", initial_value=EPOCH), NOONS)
    child = child_of(parent, incremental("at", initial_value=EPOCH + timedelta(days=3_000)))
    assert examined(child) == ["initial-value"]


def test_an_iterator_that_is_made_once_has_rows_for_the_first_chunk_alone():
    def bounded(values):
        cursor = incremental[datetime]("at", initial_value=EPOCH)
        return dlt.resource(iter([{"at": value} for value in values]), name="rows").add_step(cursor)

    shared = iter([{"at": value} for value in NOONS])
    step = incremental[datetime]("at", initial_value=EPOCH)
    # Each chunk has a resource of its own, as after a deep copy, and all have the iterator.
    assert loaded(lambda: dlt.resource(shared, name="rows").add_step(step.copy())) == [NOONS[:1], []]
    assert examined(bounded(NOONS)) == ["read-once"]

    def made(name="rows"):
        return bounded(NOONS)

    # A function makes another one each time.
    assert examined(made) == []

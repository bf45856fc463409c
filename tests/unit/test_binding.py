"""What a source's cursor is told to ask for, in every format and however it was declared. Imports dlt."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import dlt
import pytest
from dlt.sources import incremental

from airflow_provider_backfill.engine.binding import bound, effective_formats, unbindable
from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.exceptions import CursorFormatError

pytestmark = pytest.mark.unit

BERLIN = ZoneInfo("Europe/Berlin")


def day(number, zone=UTC):
    return datetime(2026, 1, number, tzinfo=zone)


def epoch(unit):
    return lambda at: int(at.timestamp() * unit)


#: Format, the zone of the window, what a row's cursor has, the initial value that types it.
FORMATS = {
    "datetime": ("datetime", UTC, lambda at: at, day(1)),
    "naive": ("naive", UTC, lambda at: at.replace(tzinfo=None), datetime(2026, 1, 1)),  # noqa: DTZ001
    "naive-berlin": (
        "naive@Europe/Berlin",
        BERLIN,
        lambda at: at.astimezone(BERLIN).replace(tzinfo=None),
        datetime(2026, 1, 1),  # noqa: DTZ001
    ),
    "date": ("date", UTC, lambda at: at.date(), date(2026, 1, 1)),
    "date-berlin": ("date", BERLIN, lambda at: at.astimezone(BERLIN).date(), date(2026, 1, 1)),
    "epoch_s": ("epoch_s", UTC, epoch(1), 0),
    "epoch_ms": ("epoch_ms", UTC, epoch(10**3), 0),
    "epoch_us": ("epoch_us", UTC, epoch(10**6), 0),
    "epoch_ns": ("epoch_ns", UTC, lambda at: int(at.timestamp()) * 10**9, 0),
    "text": ("%Y-%m-%dT%H:%M:%SZ", UTC, lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ"), "2026"),
    "text-berlin": (
        "%Y-%m-%d %H:%M@Europe/Berlin",
        BERLIN,
        lambda at: at.astimezone(BERLIN).strftime("%Y-%m-%d %H:%M"),
        "2026",
    ),
}


@pytest.fixture(params=FORMATS)
def case(request):
    return Case(*FORMATS[request.param])


@pytest.fixture(params=["datetime", "naive-berlin", "date-berlin", "epoch_ms"])
def other(request):
    """One of each way in which cursors are bound."""
    return Case(*FORMATS[request.param])


class Case:
    """Two rows a day, the first on its start; and what was asked for."""

    def __init__(self, form, zone, value, initial, untyped=False):
        self.form, self.zone, self.value = form, zone, value
        self.initial = None if untyped else initial
        self.asked = []
        hours = (timedelta(0), timedelta(hours=23, minutes=30))
        self.rows = [
            {"id": number, "at": value((day(number, zone) + hour).astimezone(UTC))}
            for number in range(1, 6)
            for hour in hours
        ]

    def cursor(self):
        return incremental("at", initial_value=self.initial)

    def wants(self, number):
        return self.value(day(number, self.zone).astimezone(UTC))

    def chunk(self, number):
        return Interval(day(number, self.zone), day(number + 1, self.zone))

    def page(self, at=None):
        if at is not None:
            self.asked.append((at.start_value, at.end_value))
        return [dict(row) for row in self.rows]


def default(case):
    @dlt.resource
    def rows(at=case.cursor()):  # noqa: B008
        yield case.page(at)

    return rows


def typed(case):
    @dlt.resource
    def rows(at=incremental("at")):
        yield case.page(at)

    return rows


def called(case):
    @dlt.resource
    def rows(region, at=case.cursor()):  # noqa: B008
        yield case.page(at)

    return rows("eu")


def merged(case):
    @dlt.resource
    def rows(at=incremental("at")):
        yield case.page(at)

    return rows(at=case.cursor())


def hint(case):
    @dlt.resource
    def rows():
        yield case.page()

    return rows.apply_hints(incremental=case.cursor())


def hint_and_default(case):
    @dlt.resource
    def rows(at=case.cursor()):  # noqa: B008
        yield case.page(at)

    return rows.apply_hints(incremental=case.cursor())


def decorator(case):
    @dlt.resource(incremental=case.cursor())
    def rows():
        yield case.page()

    return rows


def data(case):
    return dlt.resource(case.rows, name="rows", incremental=case.cursor())


def step(case):
    @dlt.resource
    def rows():
        yield case.page()

    return rows.add_step(case.cursor())


FORMS = [default, typed, called, merged, hint, hint_and_default, decorator, data, step]


def below(parent):
    @dlt.transformer(data_from=parent, name="below")
    def rows(items):
        yield items

    return rows


def extracted(spec, interval, timezone="UTC"):
    source = spec.load()
    with bound(source, interval, spec.cursor_format, timezone) as context, context:
        return [row["id"] for row in source]


@pytest.mark.parametrize("form", FORMS)
def test_each_chunk_gets_its_rows_and_the_source_is_asked_for_no_more(form, case):
    spec = SourceSpec(reference=form(case), cursor_format={"*": case.form})
    for number in (2, 4, 3, 2):
        case.asked.clear()
        assert extracted(spec, case.chunk(number), str(case.zone)) == [number, number]
        if case.asked:
            [(start, end)] = case.asked
            assert (start, end) == (case.wants(number), case.wants(number + 1))
            assert isinstance(start, type(case.wants(number)))
            assert getattr(start, "tzinfo", None) == getattr(case.wants(number), "tzinfo", None)


@pytest.mark.parametrize("form", FORMS)
def test_a_transformer_is_bounded_by_its_parent(form, other):
    parent = form(other)
    for names in ({"rows": other.form}, {"below": other.form}):
        spec = SourceSpec(reference=below(parent), cursor_format=names)
        assert extracted(spec, other.chunk(3), str(other.zone)) == [3, 3]


@pytest.mark.parametrize("form", FORMS)
def test_selected_resources_have_cursors_of_their_own(form, other):
    parent = form(other)
    made = dlt.source(lambda: [parent, below(parent)], name="made")()
    for names in (("rows",), ("below",), ("rows", "below")):
        spec = SourceSpec(reference=made, resources=names, cursor_format={"rows": other.form})
        for number in (3, 2):
            assert extracted(spec, other.chunk(number), str(other.zone)) == [number, number] * len(names)


@pytest.mark.parametrize("form", FORMS)
def test_the_source_stays_as_it_was_for_a_pipeline_that_loads_forward(form, other):
    resource = form(other)
    extracted(
        SourceSpec(reference=resource, cursor_format={"*": other.form}), other.chunk(3), str(other.zone)
    )
    assert [row["id"] for row in resource] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def whole(count=10, **hints):
    asked = []

    @dlt.resource(**hints)
    def rows(number=incremental("number", initial_value=0)):
        asked.append((number.start_value, number.end_value))
        yield [{"id": value, "number": value} for value in range(count)]

    return rows, asked


@pytest.mark.parametrize("formats", [{}, {"*": "id"}, {"rows": "id"}])
def test_a_whole_number_cursor_needs_no_format_in_a_window_of_whole_numbers(formats):
    resource, asked = whole()
    spec = SourceSpec(reference=resource, cursor_format=formats)
    assert extracted(spec, Interval(0, 4)) == [0, 1, 2, 3]
    assert extracted(spec, Interval(4, 8)) == [4, 5, 6, 7]
    assert asked == [(0, 4), (4, 8)]


def test_resources_may_differ():
    asked = {}

    def resource(name, value, initial, count=5):
        @dlt.resource(name=name)
        def rows(at=incremental("at", initial_value=initial)):
            asked[name] = (at.start_value, at.end_value)
            yield [{"id": f"{name}{number}", "at": value(day(number))} for number in range(1, count + 1)]

        return rows

    made = dlt.source(
        lambda: [
            resource("seconds", epoch(1), 0),
            resource("millis", epoch(1000), 0),
            resource("times", lambda at: at, day(1)),
            resource("days", lambda at: at.date(), date(2026, 1, 1)),
        ],
        name="made",
    )
    spec = SourceSpec(
        reference=made, cursor_format={"*": "epoch_s", "millis": "epoch_ms", "times": "datetime"}
    )
    with pytest.raises(
        CursorFormatError, match="resource 'dayz', which the source does not have; it has: days"
    ):
        effective_formats(spec.load(), {"dayz": "date"}, whole=False)
    formats = {"seconds": "epoch_s", "millis": "epoch_ms"}
    spec = SourceSpec(reference=made, cursor_format=formats)
    assert effective_formats(spec.load(), formats, whole=False) == {**formats, "days": "date"}
    assert sorted(extracted(spec, Interval(day(2), day(3)))) == ["days2", "millis2", "seconds2", "times2"]
    assert asked == {
        "seconds": (1_767_312_000, 1_767_398_400),
        "millis": (1_767_312_000_000, 1_767_398_400_000),
        "times": (day(2), day(3)),
        "days": (date(2026, 1, 2), date(2026, 1, 3)),
    }


def test_what_the_author_declared_clips_the_first_chunk():
    asked = []

    @dlt.resource
    def rows(number=incremental("number", initial_value=2, end_value=7)):
        asked.append((number.start_value, number.end_value))
        yield [{"id": value, "number": value} for value in range(10)]

    spec = SourceSpec(reference=rows)
    assert [extracted(spec, Interval(low, low + 4)) for low in (0, 4)] == [[2, 3], [4, 5, 6]]
    chunks = [Interval(low, low + 2) for low in range(0, 10, 2)]
    [finding] = unbindable(spec.load(), {}, chunks, "UTC")
    assert finding.rule == "initial-value"
    [finding] = unbindable(spec.load(), {}, chunks[1:], "UTC")
    assert finding.rule == "end-value"
    assert unbindable(spec.load(), {}, chunks[1:4], "UTC") == []


def test_an_aware_initial_value_clips_naive_bounds():
    case = Case("naive@Europe/Berlin", BERLIN, lambda at: at.astimezone(BERLIN).replace(tzinfo=None), None)
    case.initial = day(2, BERLIN) + timedelta(hours=1)
    spec = SourceSpec(reference=default(case), cursor_format={"*": case.form})
    assert extracted(spec, case.chunk(2), "Europe/Berlin") == [2]


def findings(resource, chunks, formats=None, timezone="UTC"):
    return unbindable(SourceSpec(reference=resource).load(), formats or {}, chunks, timezone)


def test_what_cannot_be_bound_is_found_for_each_resource():
    times, dates = FORMATS["datetime"], FORMATS["date"]
    half_days = [
        Interval(day(1) + n * timedelta(hours=12), day(1) + (n + 1) * timedelta(hours=12)) for n in (0, 1)
    ]
    [finding] = findings(default(Case(*dates)), half_days)
    assert finding.rule == "cursor-format"
    assert "no time of day" in finding.message
    [finding] = findings(default(Case(*times)), [Interval(0, 5)])
    assert finding.message == "its cursor is of type datetime, and the window is of whole numbers"
    [finding] = findings(default(Case(*times)), [Interval(0, 5)], {"*": "naive"})
    assert "is of times" in finding.message
    resource, _asked = whole()
    [finding] = findings(resource, half_days, {"*": "id"})
    assert "is of whole numbers" in finding.message
    assert findings(resource, half_days, {"*": "epoch_s"}) == []

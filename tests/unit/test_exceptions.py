from __future__ import annotations

import copy
import inspect
import pickle
from datetime import UTC, datetime

import pytest

from airflow_provider_backfill import exceptions
from airflow_provider_backfill.exceptions import (
    AssertionFailedError,
    AttemptError,
    BackfillCancelledError,
    BackfillError,
    BackfillPausedError,
    BoundFormatError,
    ChoiceError,
    ChunkFieldError,
    ChunkHeldError,
    ChunkMissingError,
    ChunkSizeError,
    ClaimLostError,
    ConnectionTypeError,
    CursorFormatError,
    DestinationUnsupportedError,
    DialectError,
    DuplicateChunksError,
    EmptyChunkError,
    EmptyWindowError,
    Finding,
    GateError,
    HandoverError,
    LedgerBusyError,
    LedgerError,
    LedgerUnreachableError,
    MapLengthError,
    NaiveBoundError,
    OverlapError,
    PlanConflictError,
    PreflightError,
    PromoteError,
    RefusedError,
    RestateError,
    SettingError,
    SourceArgumentsError,
    SourceImportError,
    SourceNotFoundError,
    StrategyError,
    TargetError,
    TimezoneError,
    TooManyChunksError,
    UnconfirmedPlanError,
    WindowError,
)

pytestmark = pytest.mark.unit

NO_CURSOR = Finding(
    rule="no-cursor",
    resource="page_views",
    message="has no incremental cursor, so a chunk cannot be bounded",
    remedy="add dlt.sources.incremental(...) to it",
)
REPLACE = Finding(
    rule="replace", resource=None, message="write_disposition is 'replace'.", remedy="use merge or append"
)
LEASE_END = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)

EXAMPLES: list[BackfillError] = [
    SettingError("lease_seconds", 0, "must be greater than 0"),
    NaiveBoundError("start", "2026-01-01T00:00:00", "2026-01-01T00:00:00Z"),
    EmptyWindowError(LEASE_END, LEASE_END),
    EmptyWindowError(LEASE_END, LEASE_END, from_data_interval=True),
    BoundFormatError("end", "soon", "is no time"),
    ChoiceError("on_empty", "never", ("ok", "warn", "fail")),
    ChunkFieldError("{chunk.strat}", "is unknown", "pass one of chunk.start, chunk.end"),
    CursorFormatError("%d.%m.%Y", "gives texts that do not sort as times do", "pass %Y-%m-%d"),
    EmptyChunkError("3/5"),
    AssertionFailedError("3/5", "events: min_rows_per_load(1) does not hold: 0 rows"),
    GateError({"unique": "id"}, "is unknown", "pass min_rows_per_load or another one"),
    ChunkSizeError("0d", "is not greater than 0"),
    TooManyChunksError(5_260_320, 10_000, "1m"),
    UnconfirmedPlanError("about 9 h; from 12 chunks", 8),
    MapLengthError(1_461, 1_024),
    StrategyError("forward_only", "needs the instant that nothing is loaded before", "pass since"),
    TimezoneError("Europe/Berln", ["Europe/Berlin"]),
    SourceNotFoundError("sources.web:views", "there is no module sources.web"),
    SourceImportError("sources.web:views", "ModuleNotFoundError: No module named 'requests'"),
    SourceArgumentsError("sources.web:views", "got an unexpected keyword argument 'limit'", "it takes: page"),
    DestinationUnsupportedError("filesystem", ["transactions"], ["duckdb", "postgres"]),
    DialectError("acme", "acme-dialect 1.0", "ImportError: no module named acme"),
    ConnectionTypeError("warehouse", "ftp", ["duckdb", "postgres"]),
    PreflightError([NO_CURSOR]),
    PlanConflictError("d7a7c6e21e0d8ecb", {"chunk_size": ("1d", "24h")}),
    OverlapError("web_events", "17df65b5336d2ad6", "2026-01-01 → 2026-01-02", 1),
    PromoteError("web_look", "it has not completed 2026-01-02 → 2026-01-03", "load that with run --into"),
    HandoverError("web_forward", "the window is not covered", "run it again until it is"),
    RestateError("chunk 3", "the ledger does not say which rows it loaded"),
    ClaimLostError("3/5", "publish", "worker-2:77"),
    ChunkHeldError("3/5", "worker-1:4711", LEASE_END, 41.6),
    BackfillPausedError("d7a7c6e21e0d8ecb", "alice@laptop", LEASE_END, "the API is slow"),
    BackfillCancelledError("d7a7c6e21e0d8ecb", "alice@laptop", LEASE_END),
    LedgerBusyError("web.duckdb", 600.0),
    LedgerUnreachableError("postgres", "connection refused"),
    DuplicateChunksError("d7a7c6e21e0d8ecb", "000002"),
    ChunkMissingError("d7a7c6e21e0d8ecb", "000002"),
    AttemptError("3/5", "source raised\nValueError: no"),
]


def _classes() -> set[type[BackfillError]]:
    found = {value for _, value in inspect.getmembers(exceptions, inspect.isclass)}
    return {cls for cls in found if issubclass(cls, BackfillError)}


def test_every_leaf_of_the_tree_has_an_example():
    leaves = {cls for cls in _classes() if not cls.__subclasses__()}
    # An attempt fails for many reasons, one of which has a class of its own.
    assert leaves | {AttemptError} == {type(error) for error in EXAMPLES}


def test_the_docstring_draws_the_whole_tree():
    drawn, path = set(), [""]
    for line in (exceptions.__doc__ or "").splitlines():
        name = line.strip(" │├└─").split(" ")[0]
        if name.endswith("Error"):
            depth = line.index(name) // 4
            path[depth:] = [name]
            drawn.add((path[depth - 1], name))
    edges = {(cls.__mro__[1].__name__, cls.__name__) for cls in _classes() - {BackfillError}}
    assert drawn == edges | {("", "BackfillError")}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling_and_copying(error):
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_notes_and_plain_messages_survive_pickling():
    error = LedgerError("no table")
    error.add_note("seen in chunk 3/5")
    twin = pickle.loads(pickle.dumps(error))
    assert str(twin) == "no table"
    assert twin.__notes__ == ["seen in chunk 3/5"]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_messages_are_one_line_that_says_what_to_do(error):
    message = str(error)
    assert "\n" not in message
    assert ";" in message


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_refusals_end_with_a_link_to_their_entry(error):
    rule = error.findings[0].rule if isinstance(error, PreflightError) else type(error).__name__
    link = f" (see docs/refusals.md#{rule.lower()})"
    if isinstance(error, RefusedError):
        assert str(error).endswith(link)
    assert str(error).count("docs/") == isinstance(error, RefusedError)


def test_a_plain_refusal_has_a_link_and_a_finding_says_it_apart():
    error = TargetError("none is given; pass one of them")
    assert str(error) == "none is given; pass one of them (see docs/refusals.md#targeterror)"
    finding = Finding.of_error(error)
    assert (finding.message, finding.docs) == (
        "none is given; pass one of them",
        "docs/refusals.md#targeterror",
    )
    assert str(finding) == str(error)


def test_refusals_exit_with_2_and_the_rest_with_1():
    for cls in _classes():
        assert cls.exit_code == (2 if issubclass(cls, RefusedError) else 1)
    assert issubclass(WindowError, RefusedError)
    assert issubclass(TargetError, RefusedError)


def test_values_are_attributes():
    held = ChunkHeldError("3/5", "worker-1:4711", LEASE_END, 41.6)
    assert (held.chunk, held.holder, held.lease_expires_at, held.seconds_left) == (
        "3/5",
        "worker-1:4711",
        LEASE_END,
        41.6,
    )
    assert str(held) == (
        "chunk 3/5 is held by worker-1:4711 until 2026-01-01T12:00:30+00:00 (42 s left) unless renewed; "
        "wait until it is done or its lease runs out"
    )


def test_a_holder_without_a_lease_must_be_released_by_hand():
    assert str(ChunkHeldError("3/5", "host:1", None, None)) == (
        "chunk 3/5 is held by host:1 without a lease; once it is sure that nobody works on it, "
        "free it with the command chunked-backfill release"
    )


def test_plan_conflict_names_both_values():
    message = str(PlanConflictError("d7a7c6e21e0d8ecb", {"chunk_size": ("1d", "24h")}))
    assert message.startswith(
        "backfill d7a7c6e21e0d8ecb exists with different inputs "
        "(chunk_size is '1d' in the ledger and '24h' here)"
    )
    assert str(PlanConflictError("x")).startswith("backfill x exists with different inputs;")


def test_preflight_prints_every_finding():
    assert str(PreflightError([NO_CURSOR])) == (
        "refused: resource 'page_views': has no incremental cursor, so a chunk cannot be bounded; "
        "add dlt.sources.incremental(...) to it (see docs/refusals.md#no-cursor)"
    )
    both = PreflightError([NO_CURSOR, REPLACE])
    assert list(both.findings) == [NO_CURSOR, REPLACE]
    lines = str(both).splitlines()
    assert lines[0] == "refused for 2 reasons:"
    assert lines[1] == f"- {NO_CURSOR}"
    assert lines[2] == (
        "- write_disposition is 'replace'; use merge or append (see docs/refusals.md#replace)"
    )
    assert str(pickle.loads(pickle.dumps(both))) == str(both)


def test_empty_data_interval_names_the_timetable():
    message = str(EmptyWindowError(LEASE_END, LEASE_END, from_data_interval=True))
    assert "empty window" in message
    assert "CronDataIntervalTimetable" in message
    assert "create_cron_data_intervals" in message
    assert "CronDataIntervalTimetable" not in str(EmptyWindowError(LEASE_END, LEASE_END))


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://loader:hunter2@db.example/web",
        "postgresql://loader:hunter2@x@db.example/web",
        "host=db.example password=hunter2 user=loader",
        "host=db.example password='hunter2 hunter2' user=loader",
        "postgresql://db.example/web?user=loader&password=hunter2",
        "md:web?motherduck_token=hunter2",
        "postgresql://loader:" + "hunter2" * 30 + "@db.example/web",
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        BackfillError,
        DestinationUnsupportedError,
        lambda text: AttemptError("3/5", text),
        lambda text: LedgerBusyError(text, 5.0),
        lambda text: SourceImportError("a:b", text),
        lambda text: PlanConflictError("x", {"destination": (text, text)}),
        lambda text: PreflightError([Finding(rule="r", resource=text, message=text, remedy=text)]),
    ],
)
def test_no_message_holds_a_password(make, text):
    assert "hunter2" not in str(make(text))


def test_long_and_multi_line_values_are_cut_to_one_short_line():
    assert len(str(AttemptError("3/5", "line\n" * 1_000))) < 700
    assert len(str(ChunkSizeError("9" * 5_000, "is too long"))) < 300

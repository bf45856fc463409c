"""The command's parsing, messages and exit codes; what it loads is in the integration tests."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner, Result

from airflow_provider_backfill import __version__
from airflow_provider_backfill.cli import main
from airflow_provider_backfill.cli.output import Lines, waiting_for
from airflow_provider_backfill.cli.request import Request
from airflow_provider_backfill.engine.plan import make_plan
from airflow_provider_backfill.engine.records import ChunkRow, Claim
from airflow_provider_backfill.engine.report import Tally
from airflow_provider_backfill.engine.signals import Stopped
from airflow_provider_backfill.engine.window import Window
from airflow_provider_backfill.exceptions import LedgerUnreachableError
from tests.support.commands import REPOSITORY, untouched

COMMANDS = sorted(main.commands)
WINDOW = ("--from", "2026-01-01", "--to", "2026-01-06", "--chunk", "1d")
PLACE = ("--destination", "duckdb:///web.duckdb", "--dataset", "web_raw")
MODULE = sys.modules["airflow_provider_backfill.cli.run"]


@pytest.fixture(autouse=True)
def clean():
    with untouched():
        yield


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture
def given(monkeypatch):
    """The request that a command line becomes."""

    def parse(*arguments: str) -> Request:
        requests: list[Request] = []

        def remember(request: Request) -> list[Tally]:
            requests.append(request)
            return [tally()]

        monkeypatch.setattr(MODULE, "_run", remember)
        result = invoke("run", "sources.web:views", *WINDOW, *PLACE, *arguments)
        assert result.exit_code == 0, result.output
        [request] = requests
        return request

    return parse


def tally(**changes: object) -> Tally:
    values = {
        "backfill_id": "d7a7c6e21e0d8ecb",
        "completed": 3,
        "skipped": 2,
        "claimed_elsewhere": 0,
        "failed": (),
        "pending": 0,
        "total": 5,
        "records": 5,
    }
    return Tally(**{**values, **changes})  # type: ignore[arg-type]


# Parsing


def test_defaults(given):
    request = given()
    assert request.place.destination == "duckdb:///web.duckdb"
    assert request.place.dataset == "web_raw"
    assert (request.timezone, request.concurrency) == ("UTC", 1)
    assert (request.source_name, request.resources, request.arguments) == (None, (), {})


def test_resources_are_a_list_of_names(given):
    assert given("--resources", "views, clicks,views,").resources == ("views", "clicks")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n=3", 3),
        ("n=true", True),
        ("n=null", None),
        ("n=[1, 2]", [1, 2]),
        ('n={"a": 1}', {"a": 1}),
        ('n="3"', "3"),
        ("n=eu-west", "eu-west"),
        ("n=2026-01-01", "2026-01-01"),
        ("n=007", "007"),
        ("n=NaN", "NaN"),
        ("n=a=b", "a=b"),
        ("n=", ""),
    ],
)
def test_arguments_are_json_where_they_can_be(given, text, value):
    assert given("--set", text).arguments == {"n": value}


def test_arguments_add_up(given):
    assert given("--set", "a=1", "--set", "b=x").arguments == {"a": 1, "b": "x"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "hunter2"), "Invalid value for '--set': number 1 is not of the form key=value"),
        (
            ("--set", "a=1", "--set", "2b=hunter2"),
            "Invalid value for '--set': number 2 is not of the form key=value",
        ),
        (("--set", "a=1", "--set", "a=hunter2"), "Invalid value for '--set': a is given twice"),
        (("--resources", ","), "Invalid value for '--resources': it names no resource"),
        (("--concurrency", "0"), "Invalid value for '--concurrency': 0 is not in the range x>=1"),
        (("--concurrency", "many"), "Invalid value for '--concurrency': 'many' is not a valid integer range"),
        (("--conn-id", "warehouse"), "Pass either --destination or --conn-id"),
        (("--timezones", "UTC"), "No such option '--timezones'"),
        (("postgresql://loader:hunter2@host/db",), "Got unexpected extra argument"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(arguments, message):
    result = invoke("run", "sources.web:views", *WINDOW, *PLACE, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert line.startswith(f"error: {message}")
    assert line.endswith("; see chunked-backfill run --help")
    assert "hunter2" not in line


@pytest.mark.parametrize("missing", ["--from", "--to", "--chunk", "--dataset"])
def test_what_has_no_default_is_required(missing):
    options = dict(zip(*[iter((*WINDOW, *PLACE))] * 2, strict=True))
    del options[missing]
    result = invoke("run", "sources.web:views", *(text for pair in options.items() for text in pair))
    assert result.exit_code == 2
    assert result.stderr == f"error: Missing option '{missing}'; see chunked-backfill run --help\n"


@pytest.mark.parametrize(
    "arguments", [("status",), ("status", "--dataset", "web_raw"), ("run",), ("walk",), ("--x",)]
)
def test_misuse_of_any_kind_is_one_line(arguments):
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1


# Help


def test_no_command_is_misuse_and_shows_the_help():
    result = invoke()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Exit codes:" in result.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], *([name, "--help"] for name in COMMANDS)])
def test_help_is_no_error(arguments):
    result = invoke(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Usage: chunked-backfill" in result.stdout


def test_every_option_says_what_it_is_without():
    for name, command in main.commands.items():
        context = click.Context(command, info_name=name)
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                _, text = parameter.get_help_record(context) or ("", "")
                assert "[default: " in text or "[required" in text, (name, parameter.name, text)


def test_the_help_names_every_setting():
    from dataclasses import fields

    from airflow_provider_backfill.engine.settings import Settings

    shown = {
        line.split()[0]: line.split()[1]
        for line in invoke("--help").stdout.splitlines()
        if "AIRFLOW__" in line
    }
    for field in fields(Settings):
        default = shown.pop(f"AIRFLOW__CHUNKED_BACKFILL__{field.name.upper()}")
        expected = "none" if field.default is None else field.default
        assert default == str(expected) or expected == "" or float(default) == expected
    assert shown == {}


def test_version():
    result = invoke("--version")
    assert (result.exit_code, result.stdout) == (0, f"chunked-backfill {__version__}\n")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["status", *PLACE], ["plan", "x:y", *WINDOW]]
)
def test_neither_dlt_nor_airflow_is_imported_in_vain(tmp_path, arguments):
    code = (
        "import sys; from airflow_provider_backfill.cli import main\n"
        f"try: main({arguments!r}, standalone_mode=False)\n"
        "except Exception: pass\n"
        "sys.exit(' '.join({'airflow', 'dlt', 'duckdb', 'psycopg2'} & sys.modules.keys()) or None)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL
    )
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


# How a run ends


@pytest.fixture
def ending(monkeypatch):
    """What the command says and returns when the run ends so."""

    def end(outcome: Tally | list[Tally] | BaseException, *arguments: str) -> Result:
        def run(request: Request) -> list[Tally]:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome if isinstance(outcome, list) else [outcome]

        monkeypatch.setattr(MODULE, "_run", run)
        return invoke("run", "sources.web:views", *WINDOW, *PLACE, *arguments)

    return end


def test_a_covered_window(ending):
    result = ending(tally())
    assert (result.exit_code, result.stderr) == (0, "")
    assert (
        result.stdout == "Backfill d7a7c6e21e0d8ecb: 3 completed, 2 skipped, 0 claimed elsewhere (5 chunks)\n"
    )


def test_a_window_that_is_not_covered(ending):
    result = ending(tally(completed=1, pending=1, claimed_elsewhere=1))
    assert result.exit_code == 1
    assert result.stdout.startswith("Backfill d7a7c6e21e0d8ecb: 1 completed, 2 skipped, 1 claimed elsewhere")
    assert result.stderr == (
        "1 pending\n"
        "error: the window is not covered, 3 of 5 chunks are completed; "
        "run the same command again to resume\n"
    )


def test_several_windows_have_a_tally_each(ending):
    result = ending([tally(), tally(completed=0, pending=3), tally(completed=5, skipped=0)])
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 3
    assert "error: not every window is covered, 12 of 15 chunks are completed; " in result.stderr
    assert ending([tally(), tally()]).exit_code == 0


def test_an_interrupted_run(ending):
    result = ending(Stopped("SIGTERM"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: interrupted; a chunk in flight was given back, resume with the same command\n"
    )


def test_an_expected_error_has_its_own_exit_code(ending):
    result = ending(LedgerUnreachableError("postgres", "no route to host"))
    assert result.exit_code == 1
    assert result.stderr.startswith("error: database 'postgres' cannot be opened: no route to host; ")


def test_an_unexpected_error_is_one_line_unless_asked_for_more(ending):
    error = RuntimeError("two\nlines postgresql://loader:hunter2@host/db")
    result = ending(error)
    assert result.exit_code == 1
    assert result.stderr == "error: RuntimeError: two lines postgresql://***@host/db (--debug shows where)\n"
    traced = ending(error, "--debug").stderr
    assert traced.startswith("Traceback (most recent call last):\n")
    assert "hunter2" not in traced
    assert traced.endswith("(--debug shows where)\n")


# Lines


PLAN = make_plan("web_events", Window.parse("2026-01-01", "2026-01-06"), "1d")


def claim(index: int) -> Claim:
    chunk = PLAN.chunks[index]
    return Claim(
        backfill_id=PLAN.backfill_id,
        chunk_id=chunk.chunk_id,
        token="t",
        attempt=1,
        interval=chunk.interval,
        run_id=chunk.run_id,
    )


def held(index: int, lease_left: float | None, claimed_by: str | None = "host:1") -> ChunkRow:
    row: Any = SimpleNamespace(number=index + 1, held=True, lease_left=lease_left, claimed_by=claimed_by)
    return cast("ChunkRow", row)


def test_one_line_a_step():
    written: list[str] = []
    with Lines(PLAN, written.append) as lines:
        lines.running(claim(2))
        lines.completed(claim(2), 17)
        lines.failed(claim(4), "ValueError: no")
    third, fifth = (f"[2026-01-0{day}T00:00:00+00:00 → 2026-01-0{day + 1}T00:00:00+00:00)" for day in (3, 5))
    assert written == [
        f"chunk 3/5 {third}: running (run_id=559264ef1526bd83)",
        f"chunk 3/5 {third}: completed (17 records)",
        f"chunk 5/5 {fifth}: failed (ValueError: no)",
    ]


def test_a_wait_is_mentioned_every_ten_seconds_at_most():
    written: list[str] = []
    now = 0.0
    lines = Lines(PLAN, written.append, clock=lambda: now)
    for second in range(25):
        now = float(second)
        lines.waiting([held(2, 42.0 - second)], 100.0 - second)
    assert written == [
        f"waiting for chunk 3/5 claimed elsewhere by host:1 (lease runs out in {lease} s unless renewed); "
        f"giving up in {left} s"
        for lease, left in ((42, 100), (32, 90), (22, 80))
    ]


def test_a_wait_for_several_names_the_longest_lease():
    rows = [held(2, 10.0), held(3, 30.4, "host:2"), held(4, 5.0)]
    assert waiting_for(rows, 5, 60.0) == (
        "waiting for 3 chunks claimed elsewhere by host:1, host:2 (lease runs out in 30 s unless renewed); "
        "giving up in 60 s"
    )
    assert "by an unknown worker (no lease)" in waiting_for([held(2, None, None)], 5, 60.0)


def test_a_wait_for_another_backfill_has_no_lease_to_name():
    pending: Any = SimpleNamespace(number=3, held=False)
    assert waiting_for([pending], 5, 60.0) == (
        "waiting for chunk 3/5 that another backfill of the source keeps; giving up in 60 s"
    )

"""``chunked-backfill validate``: what it finds, how it says it, and that it leaves everything as it was."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from click.testing import CliRunner

from airflow_provider_backfill.cli import main
from tests.integration.conftest import duckdb_target
from tests.support.commands import REPOSITORY, Site, untouched

WINDOW = ("--from", "2024-01-01", "--to", "2024-01-03", "--chunk", "1d")

#: Five resources, each with another fault, and a module that writes when it is imported.
FAULTS = """
from datetime import UTC, date, datetime

import dlt

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
cursor = dlt.sources.incremental


@dlt.source
def shop(plain=False):
    @dlt.resource
    def unbounded():
        yield []

    @dlt.resource(write_disposition="replace")
    def replaced(at=cursor("at", initial_value=EPOCH, lag=60.0)):
        yield []

    @dlt.resource
    def numbered(at=cursor("at", initial_value=0)):
        yield []

    @dlt.resource
    def texts(at=cursor("at", initial_value="2020-01-01")):
        yield []

    @dlt.resource(write_disposition="merge")
    def keyless(at=cursor("at", initial_value=EPOCH)):
        yield []

    @dlt.resource
    def good(at=cursor("at", initial_value=EPOCH)):
        yield []

    @dlt.resource
    def daily(day=cursor("day", initial_value=date(2020, 1, 1))):
        yield []

    @dlt.resource
    def late(at=cursor("at", initial_value=datetime(2025, 1, 1, tzinfo=UTC))):
        yield []

    return [unbounded, replaced, numbered, texts, keyless, good, daily, late]
"""
FIVE = "unbounded,replaced,numbered,texts,keyless"


@pytest.fixture
def folder(tmp_path: Path):
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources" / "faults.py").write_text(FAULTS)
    (tmp_path / "sources" / "writes.py").write_text(f"open('trace.txt', 'w').close()\n{FAULTS}")
    with untouched(), chdir(tmp_path):
        yield tmp_path


def validate(*arguments, code=0, source="sources.faults:shop"):
    """The lines of stdout and of stderr."""
    done = CliRunner().invoke(main, ["validate", source, *arguments])
    assert done.exit_code == code, done.output
    return done.stdout.splitlines(), done.stderr.splitlines()


def document(*arguments, code=2, **more):
    out, _ = validate("--json", *arguments, code=code, **more)
    return json.loads("\n".join(out))


def rules(*arguments, **more):
    return [(item["rule"], item["resource"]) for item in document(*arguments, **more)["findings"]]


def contents(folder: Path):
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


def test_five_faults_are_five_findings_at_once(folder):
    before = contents(folder)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "airflow_provider_backfill.cli", "validate"),
            *("sources.faults:shop", "--resources", FIVE),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "HOME": str(folder), "COLUMNS": "500"},
    )
    assert done.returncode == 2
    lines = done.stdout.splitlines()
    paragraph = re.compile(
        r"^(\d+\.|warning:) resource '(\w+)': .+\n   .+ \(see docs/refusals\.md#([a-z-]+)\)$", re.MULTILINE
    )
    assert paragraph.findall(done.stdout) == [
        ("1.", "unbounded", "no-cursor"),
        ("2.", "replaced", "replace"),
        ("3.", "numbered", "cursor-unit"),
        ("4.", "texts", "cursor-type"),
        ("5.", "keyless", "keyless-merge"),
        ("warning:", "replaced", "lag"),
    ]
    assert lines[2] == (
        "2. resource 'replaced': its write disposition is 'replace', so each chunk would delete the ones "
        "before it"
    )
    assert lines[3] == (
        "   use 'append', or 'merge' with a primary or merge key (see docs/refusals.md#replace)"
    )
    # Each with what to change below it.
    assert sum(line.startswith("   ") for line in lines) == 6
    assert done.stderr == "error: refused for 5 reasons\n"
    assert contents(folder) == before


def test_airflow_is_not_imported(folder):
    code = (
        "import sys\nfrom airflow_provider_backfill.cli import main\n"
        "try:\n    main(['validate', 'sources.faults:shop'])\nexcept SystemExit:\n    pass\n"
        "print('airflow' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "HOME": str(folder)},
    )
    assert done.stdout.splitlines()[-1] == "False"


def test_what_is_fine_is_said_to_be(folder):
    out, err = validate("--resources", "good,daily")
    assert (out, err) == (["sources.faults:shop: nothing is refused (2 resources)"], [])
    out, _ = validate("--resources", "good", *WINDOW)
    assert out == ["sources.faults:shop: nothing is refused (1 resource, 2 chunks)"]
    assert document("--resources", "good", code=0) == {
        "source": "sources.faults:shop",
        "resources": ["good"],
        "chunks": None,
        "refused": False,
        "findings": [],
        "warnings": [],
    }


def test_a_window_adds_its_rules(folder):
    selected = ("--resources", "good,daily,late")
    assert rules(*selected, code=0) == []
    assert rules(*selected, *WINDOW) == [("initial-value", "late")]
    hours = ("--from", "2024-01-01", "--to", "2024-01-02", "--chunk", "6h")
    assert rules(*selected, *hours) == [("initial-value", "late"), ("cursor-format", "daily")]
    berlin = (*WINDOW, "--timezone", "Europe/Berlin")
    assert rules("--resources", "daily", *berlin, code=0) == []


def test_a_format_binds_a_cursor(folder):
    selected = ("--resources", "numbered,texts")
    formats = ("--cursor-format", "numbered=epoch_ms", "--cursor-format", "texts=%Y-%m-%d")
    assert rules(*selected, *formats, *WINDOW, code=0) == []
    assert rules(*selected, *formats[:2]) == [("cursor-type", "texts")]
    assert rules(*selected, "--cursor-format", "nobody=epoch_s") == [("CursorFormatError", None)]


def test_findings_of_every_kind_come_together(folder):
    found = document(
        *("--resources", "unbounded"),
        *("--from", "2024-01-03T00:00:00", "--to", "2024-01-01", "--chunk", "1y"),
        *("--destination", "mysql://root:secret@localhost/db", "--dataset", "raw"),
        source="sources.writes:shop",
    )
    assert [item["rule"] for item in found["findings"]] == [
        "NaiveBoundError",
        "ChunkSizeError",
        "DestinationUnsupportedError",
        "import-io",
        "no-cursor",
    ]
    assert "secret" not in json.dumps(found)
    assert not any("docs/" in item["message"] for item in found["findings"])
    assert f"{folder}/sources/writes.py:1 writes to 'trace.txt'" in found["findings"][3]["message"]
    assert {item["docs"].partition("#")[0] for item in found["findings"]} == {"docs/refusals.md"}


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("sources.nothing:shop", "SourceNotFoundError"),
        ("sources.faults:nothing", "SourceNotFoundError"),
        ("sources.faults", "SourceNotFoundError"),
    ],
)
def test_a_source_that_is_not_there(folder, source, rule):
    found = document(source=source)
    assert [item["rule"] for item in found["findings"]] == [rule]
    assert found["resources"] is None


def test_resources_and_arguments_are_checked(folder):
    assert rules("--resources", "nobody") == [("SourceNotFoundError", None)]
    assert rules("--set", "nobody=1") == [("SourceArgumentsError", None)]
    assert rules("--set", "plain=true", "--resources", "good", code=0) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--from", "2024-01-01"),
        ("--from", "2024-01-01", "--to", "2024-01-02"),
        ("--destination", "duckdb:///a.duckdb"),
        ("--dataset", "raw"),
        ("--destination", "duckdb:///a.duckdb", "--conn-id", "warehouse", "--dataset", "raw"),
    ],
)
def test_half_a_window_or_half_a_destination_is_misuse(folder, arguments):
    out, err = validate(*arguments, code=2)
    assert out == []
    assert err[0].startswith("error: Pass ")


def test_a_destination_is_read_and_not_made(folder):
    place = ("--destination", "duckdb:///new.duckdb", "--dataset", "raw")
    before = contents(folder)
    assert rules("--resources", "good", *WINDOW, *place, code=0) == []
    assert contents(folder) == before


def test_the_ledger_is_asked_for_chunks_done_elsewhere(tmp_path):
    site = Site(home=tmp_path / "home", target=duckdb_target(tmp_path / "web.duckdb"))
    site.backfill("run")
    source = "sources.web_events:page_views"
    # Covered as a whole, and in part.
    site.call("validate", source, "--from", "2026-01-01", "--to", "2026-01-06", "--chunk", "5d", *site.place)
    wider = ("--from", "2026-01-01", "--to", "2026-01-08", "--chunk", "7d")
    done = site.call("validate", source, *wider, *site.place, code=2)
    assert done.out[0].count("docs/") == 1
    assert done.out[0].endswith(" (see docs/refusals.md#overlaperror)")

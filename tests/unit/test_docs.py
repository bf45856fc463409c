"""README and docs say what the code does: snippets, tables, links."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from click.testing import CliRunner

from airflow_provider_backfill import exceptions
from airflow_provider_backfill.cli import explain, main
from airflow_provider_backfill.engine.ledger import OWN_COLUMNS
from airflow_provider_backfill.engine.plan import make_plan
from airflow_provider_backfill.engine.queries import load_queries
from airflow_provider_backfill.engine.records import TRANSITIONS
from airflow_provider_backfill.engine.settings import SECTION, Settings
from airflow_provider_backfill.engine.window import Window
from airflow_provider_backfill.exceptions.base import docs_of
from airflow_provider_backfill.get_provider_info import get_provider_info
from tests.support.pages import (
    DOCS,
    FENCE,
    LINK,
    PACKAGE,
    README,
    ROOT,
    blocks,
    code,
    every_page,
    name_of,
    prose,
    slugs,
    table,
)

# Snippets


@every_page
def test_snippets_are_valid(page):
    for block in blocks(page, "python"):
        compile(block, name_of(page), "exec")
    for block in blocks(page, "json"):
        json.loads(block)


def test_the_dag_in_the_readme_is_an_example_and_has_ten_lines():
    example = (ROOT / "dags_examples" / "example_minimal.py").read_text(encoding="utf-8")
    excerpt = example.partition("# [START minimal]\n")[2].partition("# [END minimal]\n")[0]
    assert excerpt
    assert blocks(README, "python") == [excerpt]
    dag = excerpt[excerpt.index("with DAG") :]
    assert len(dag.splitlines()) == 10


@every_page
def test_commands_are_taken_as_they_stand(page):
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["make"]:
                assert words[1] in targets
            if words[:1] == ["chunked-backfill"]:
                command = main.commands[words[1]]
                command.make_context(words[1], words[2:])


@every_page
def test_included_excerpts_exist(page):
    for match in FENCE.finditer(page.read_text(encoding="utf-8")):
        if match["info"].startswith("{literalinclude}"):
            text = (page.parent / match["info"].split()[1]).read_text(encoding="utf-8")
            for mark in re.findall(r'^:(?:start-after|end-before): "(.+)"$', match["body"], re.MULTILINE):
                assert text.count(mark) == 1


# Links


@every_page
def test_relative_links_lead_somewhere(page):
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), link
        assert not anchor or anchor in slugs(target), link


def test_every_page_is_in_the_contents():
    entries = {
        line
        for match in FENCE.finditer((DOCS / "index.md").read_text(encoding="utf-8"))
        if match["info"].strip() == "{toctree}"
        for line in match["body"].splitlines()
        if line and not line.startswith(":")
    }
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    assert entries == pages - {"index"}


# Settings


def test_settings_are_those_of_the_code():
    rows = table(prose(DOCS / "reference" / "settings.md"), "option")
    documented = {code(option): default for option, default, *_ in rows}
    defaults = Settings()
    assert documented == {
        name: "none" if getattr(defaults, name) is None else f"{getattr(defaults, name)}"
        for name in Settings.__dataclass_fields__
    }
    for option, _, unit, variable, _ in rows:
        name = code(option)
        assert code(variable) == f"AIRFLOW__{SECTION.upper()}__{name.upper()}"
        counted = name.rpartition("_")[2]
        assert unit == (counted if counted in ("seconds", "chunks", "hours") else "")


def test_the_provider_declares_every_setting():
    options = get_provider_info()["config"][SECTION]["options"]
    declared = {name: str(option["default"] or "") for name, option in options.items()}
    defaults = Settings()
    assert declared == {
        name: "" if getattr(defaults, name) is None else f"{getattr(defaults, name)}"
        for name in Settings.__dataclass_fields__
    }


# Refusals and exceptions


def rules() -> set[str]:
    """The names that preflight gives its findings."""
    names: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                # One that comes from a variable is a literal elsewhere.
                names |= {
                    str(word.value.value)
                    for word in node.keywords
                    if word.arg == "rule" and isinstance(word.value, ast.Constant)
                }
    return names


def below(error: type[exceptions.BackfillError]) -> Iterator[type[exceptions.BackfillError]]:
    for child in error.__subclasses__():
        yield child
        yield from below(child)


def test_every_refusal_has_an_entry_and_every_entry_a_refusal():
    entries = re.findall(r"^### (.+)$", prose(DOCS / "refusals.md"), re.MULTILINE)
    assert len(entries) == len(set(entries))
    # A class that others derive from is raised by itself only if it takes a plain message.
    raised = {error.__name__ for error in below(exceptions.RefusedError)} - {
        "WindowError",
        "SourceError",
        "PreflightError",
    }
    assert rules()
    assert set(entries) == rules() | raised
    # Messages link to them.
    anchors = slugs(DOCS / "refusals.md")
    assert {docs_of(name).removeprefix("docs/refusals.md#") for name in entries} <= anchors


def test_entries_can_be_read_where_the_docs_are_not_installed():
    invoke = CliRunner().invoke
    names = invoke(main, ["explain"]).output.splitlines()
    assert names == re.findall(r"^### (.+)$", prose(DOCS / "refusals.md"), re.MULTILINE)
    for name in names:
        result = invoke(main, ["explain", docs_of(name)])
        assert result.exit_code == 0
        heading, _, text = result.output.partition("\n\n")
        assert heading == name
        assert text.strip()
        assert "#" not in text
        assert "](" not in text
    assert "\n\nDeclare a cursor" in invoke(main, ["explain", "No-Cursor"]).output
    assert invoke(main, ["explain", "no"]).exit_code == 2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    forced = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert forced == {"docs/refusals.md": explain.PAGES[0].relative_to(ROOT).as_posix()}


def test_the_tree_of_exceptions_is_that_of_the_code():
    page = DOCS / "reference" / "exceptions.md"
    [tree] = blocks(page, "text")
    doc = exceptions.__doc__ or ""
    assert [line.strip() for line in tree.splitlines()] == [
        line.strip() for line in doc.partition("::\n\n")[2].partition("\n\n")[0].splitlines()
    ]
    documented = set(re.findall(r"\b[A-Z]\w+Error\b", tree))
    assert documented == {error.__name__ for error in below(exceptions.BackfillError)} | {"BackfillError"}


def test_exit_codes_are_those_of_the_code():
    rows = table(prose(DOCS / "reference" / "exceptions.md"), "class")
    documented = {getattr(exceptions, code(name)): int(number) for name, number, _ in rows}
    for error in below(exceptions.BackfillError):
        [number] = [number for root, number in documented.items() if issubclass(error, root)]
        assert error.exit_code == number


# Ledger


def test_ledger_columns_are_those_of_the_code():
    created = re.findall(
        r"^    (\w+) (\w+)( NOT NULL)?,?$", load_queries("ledger.sql")["create"], re.MULTILINE
    )
    expected = [(name, f"{kind}, *not null*" if required else kind) for name, kind, required in created]
    expected += OWN_COLUMNS.items()
    rows = table(prose(DOCS / "reference" / "ledger.md"), "column")
    assert [(code(name), kind) for name, kind, _ in rows] == expected


def test_transitions_are_those_of_the_code():
    rows = table(prose(DOCS / "concepts.md"), "from")
    assert {(code(old), code(new)) for old, new, _ in rows} == set(TRANSITIONS)
    assert len(rows) == len(TRANSITIONS)


def test_identity_vectors_hold():
    rows = table(prose(DOCS / "reference" / "identity.md"), "source")
    assert len(rows) == 5
    for source, start, end, size, *expected in rows:
        plan = make_plan(source, Window.parse(start, end), size)
        runs = [plan.chunks[0].run_id, plan.chunks[-1].run_id]
        assert [str(len(plan.chunks)), plan.backfill_id, *runs] == expected


def test_the_ledger_in_the_readme_is_that_of_the_plan():
    plan = make_plan("web_events", Window.parse("2026-01-01", "2026-01-06"), "1d")
    rows = table(prose(README), "chunk")
    assert [(number, interval, run) for number, interval, _, _, _, run, _ in rows] == [
        (f"{chunk.number}/5", plan.label(chunk.interval), chunk.run_id) for chunk in plan.chunks
    ]
    assert f"Backfill {plan.backfill_id}: 3 completed, 2 skipped" in prose(README)


def test_daylight_saving_numbers_hold():
    new_york = ZoneInfo("America/New_York")
    expected = []
    for size in ("1d", "24h"):
        plan = make_plan("any", Window.parse("2026-03-07", "2026-03-10", new_york), size)
        for chunk in plan.chunks:
            start, end = chunk.interval.instants
            local = start.astimezone(new_york).isoformat(timespec="minutes")
            utc = start.replace(tzinfo=None).isoformat(timespec="minutes") + "Z"
            hours = f"{(end - start).total_seconds() / 3600:g} h"
            expected.append([f"`{size}`", str(chunk.number), local, utc, hours])
    page = prose(DOCS / "howto" / "chunks-and-time-zones.md")
    assert table(page[page.index("| size | chunk |") :], "size") == expected
    autumn = make_plan("any", Window.parse("2024-11-03", "2024-11-04", new_york), "1h")
    assert len(autumn.chunks) == 25
    assert "2024-11-03 by `1h` is\n25 chunks" in page
    months = make_plan("any", Window.parse("2024-01-31", "2024-05-01"), "1mo").chunks
    starts = [chunk.interval.start for chunk in months]
    assert starts == [datetime(2024, *day, tzinfo=UTC) for day in ((1, 31), (2, 29), (3, 31), (4, 30))]

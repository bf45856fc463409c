"""The reference pages say what the command and the operators take."""

from __future__ import annotations

import ast
import json
import re

import click
import pytest

from airflow_provider_backfill.cli import main
from airflow_provider_backfill.engine.metrics import CATALOGUE, Metric
from airflow_provider_backfill.engine.metrics_file import JsonLines
from tests.support.pages import CODE, DOCS, PACKAGE, blocks, code, prose, section, table

# Command

#: What chooses the windows of `run`, and confirms them; other commands have theirs given.
CHOOSING = {"strategy", "since", "lookback", "grain", "yes"}


@pytest.mark.parametrize("name", ["run", "validate", "explain", "status", "release", "mend"])
def test_options_are_those_of_the_command(name):
    rows = table(section(DOCS / "reference" / "command.md", f"## {name}"), "option")
    documented = {re.split(r"[ =]", spelling)[0] for option, *_ in rows for spelling in CODE.findall(option)}
    command = main.commands[name]
    taken = {
        spelling
        for parameter in command.params
        for spelling in (
            parameter.opts if isinstance(parameter, click.Option) else [parameter.human_readable_name]
        )
    }
    assert documented == taken


def test_subcommands_are_those_of_the_command():
    text = prose(DOCS / "reference" / "command.md")
    sections = set(re.findall(r"^## (\w+)$", text, re.MULTILINE))
    assert sections == set(main.commands)
    run, plan = (main.commands[name].params for name in ("run", "plan"))
    assert {parameter.name for parameter in plan} - {parameter.name for parameter in run} == {
        "as_json",
        "reasons",
    }
    promote = main.commands["promote"].params
    assert [parameter.opts for parameter in promote] == [
        parameter.opts for parameter in run if parameter.name not in CHOOSING
    ]


@pytest.mark.parametrize(
    ("name", "like"), [("restate", "restate"), ("mark", "mark"), ("pause", "pause"), ("cancel", "pause")]
)
def test_options_beside_those_of_run_are_those_of_the_command(name, like):
    """These take what `run` takes of a window, so that a known command line needs another word alone."""
    rows = table(section(DOCS / "reference" / "command.md", f"## {like}"), "option")
    documented = {re.split(r"[ =]", spelling)[0] for option, *_ in rows for spelling in CODE.findall(option)}
    run, taken = ({p.name: p.opts for p in main.commands[word].params} for word in ("run", name))
    shared = set(run) - CHOOSING
    assert shared <= set(taken)
    assert documented == {spelling for key in set(taken) - shared for spelling in taken[key]}


def test_resume_takes_what_pause_does_but_no_reason():
    pause, resume = ({p.name for p in main.commands[word].params} for word in ("pause", "resume"))
    assert pause - resume == {"reason"}
    assert not resume - pause


# Metrics


def test_metrics_are_those_of_the_code():
    rows = table(section(DOCS / "reference" / "metrics.md", "# Metrics"), "name")
    assert {code(name): kind for name, kind, _ in rows} == CATALOGUE


def test_what_a_line_of_metrics_has_is_what_the_page_says(tmp_path):
    page = DOCS / "reference" / "metrics.md"
    [example] = map(json.loads, blocks(page, "json"))
    names = {"name", "kind", "value", "tags"}
    subject = {name: example[name] for name in set(example) - names - {"time"}}
    written = tmp_path / "metrics.jsonl"
    JsonLines(written).write(Metric(subject=subject, **{name: example[name] for name in names}))
    assert json.loads(written.read_text()) | {"time": example["time"]} == example
    rows = table(section(page, "## Lines of JSON"), "key")
    assert {name for cell, _ in rows for name in CODE.findall(cell)} == set(example)


# Operators and hook; read as text, since importing Airflow takes seconds


def classes() -> dict[str, ast.ClassDef]:
    paths = [*(PACKAGE / "operators").glob("*.py"), PACKAGE / "hooks" / "backfill.py"]
    nodes = [node for path in paths for node in ast.parse(path.read_text(encoding="utf-8")).body]
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


def arguments(*names: str, function: str = "__init__") -> dict[str, str]:
    """Keyword arguments and their defaults, as literals; base classes first."""
    found: dict[str, str] = {}
    for name in names:
        [node] = [
            item
            for item in classes()[name].body
            if isinstance(item, ast.FunctionDef) and item.name == function
        ]
        for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            found[argument.arg] = "required" if default is None else repr(ast.literal_eval(default))
    return found


def documented_arguments(heading: str) -> dict[str, str]:
    rows = table(section(DOCS / "reference" / "operators.md", heading), "argument")
    return {
        code(name): "required" if default == "required" else repr(ast.literal_eval(code(default)))
        for name, default, _ in rows
    }


_OPERATOR = ("TargetOperator", "SourceOperator", "ChunkedBackfillOperator")


@pytest.mark.parametrize(
    ("heading", "names", "function"),
    [
        ("## ChunkedBackfillOperator.expand_window", _OPERATOR[-1:], "expand_window"),
        ("## ChunkedBackfillOperator", _OPERATOR, "__init__"),
        ("## BackfillHook", ("BackfillHook",), "__init__"),
    ],
)
def test_arguments_are_those_of_the_code(heading, names, function):
    assert documented_arguments(heading) == arguments(*names, function=function)


def test_templated_arguments_are_those_of_the_code():
    fields: set[str] = set()
    for name in (*_OPERATOR, "BackfillPlanOperator"):
        for node in classes()[name].body:
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "template_fields":
                assert isinstance(node.value, ast.Tuple)
                fields |= {str(item.value) for item in node.value.elts if isinstance(item, ast.Constant)}
    page = DOCS / "reference" / "operators.md"
    for heading in ("## ChunkedBackfillOperator", "## ChunkedBackfillOperator.expand_window"):
        rows = table(section(page, heading), "argument")
        names = {code(name).replace("resources", "resource_names") for name, *_ in rows}
        templated = {
            code(name).replace("resources", "resource_names")
            for name, _, meaning in rows
            if meaning.endswith("(templated)")
        }
        assert templated == fields & names

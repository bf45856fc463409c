"""The named statements, and that SQL and Python speak of the same states."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from string import Formatter

import pytest

from airflow_provider_backfill.engine import controls as controls_module
from airflow_provider_backfill.engine import inputs as inputs_module
from airflow_provider_backfill.engine import lease as lease_module
from airflow_provider_backfill.engine import ledger as ledger_module
from airflow_provider_backfill.engine import ledger_reader as ledger_reader_module
from airflow_provider_backfill.engine import maps as maps_module
from airflow_provider_backfill.engine import marks as marks_module
from airflow_provider_backfill.engine import overview as overview_module
from airflow_provider_backfill.engine import visits as visits_module
from airflow_provider_backfill.engine.destinations import dialects
from airflow_provider_backfill.engine.queries import bind, load_queries
from airflow_provider_backfill.engine.records import CLAIMABLE, HELD, TRANSITIONS, ChunkStatus

pytestmark = pytest.mark.unit

#: Statements on the ledger alone; people's marks have a file of their own.
LEDGER = {
    **load_queries("ledger.sql"),
    **{name: text for name, text in load_queries("marks.sql").items() if text.startswith("UPDATE")},
}
UPDATES = sorted(name for name, statement in LEDGER.items() if statement.startswith("UPDATE"))
STATUS = r"status\s*(?:=|<>|(?:NOT )?IN)\s*(\([^)]*\)|'[^']*')"


# --- the loader


def test_statements_are_found_by_name_without_their_comments():
    assert set(LEDGER) >= {"create", "seed", "claim", "renew", "complete", "fail", "restate"}
    assert LEDGER["clock"] == "SELECT {now}"
    for statement in LEDGER.values():
        assert statement.strip() == statement != ""
        assert "--" not in statement
        assert ";" not in statement


@pytest.mark.parametrize(
    ("file", "modules"),
    [
        ("ledger.sql", (ledger_module, ledger_reader_module)),
        ("maps.sql", (maps_module,)),
        ("visits.sql", (visits_module,)),
        ("inputs.sql", (inputs_module,)),
        ("controls.sql", (controls_module,)),
        ("marks.sql", (marks_module,)),
        ("overview.sql", (overview_module,)),
    ],
)
def test_each_statement_is_used_by_its_class_and_nothing_else_is(file, modules):
    used = {
        str(call.args[0].value)
        for module in modules
        for call in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("_run", "_rows", "_guarded", "_ask")
        and isinstance(call.args[0], ast.Constant)
    }
    assert used | {"create"} == set(load_queries(file)) | {"create"}


def test_a_file_that_does_not_exist_is_an_error():
    with pytest.raises(FileNotFoundError):
        load_queries("nothing.sql")


# --- parameters


@pytest.mark.parametrize(
    ("statement", "mark", "text", "names"),
    [
        ("SELECT 1", "%({})s", "SELECT 1", ()),
        ("WHERE a = :a", "%({})s", "WHERE a = %(a)s", ("a",)),
        ("WHERE a = :a", "${}", "WHERE a = $a", ("a",)),
        ("(:b, :a_x, :b)", "${}", "($b, $a_x, $b)", ("b", "a_x")),
        ("CAST(x AS text), x::text, :text", "${}", "CAST(x AS text), x::text, $text", ("text",)),
        (
            "VALUES(:from_, now() + :s * INTERVAL '1 s')",
            "?",
            "VALUES(?, now() + ? * INTERVAL '1 s')",
            ("from_", "s"),
        ),
        ("'12:30'", "${}", "'12:30'", ()),
    ],
)
def test_parameters_are_written_in_the_drivers_style(statement, mark, text, names):
    assert bind(statement, mark) == (text, names)


@pytest.mark.parametrize("dialect", dialects().values(), ids=lambda dialect: dialect.name)
def test_every_dialect_says_what_the_statements_leave_to_it(dialect):
    own = {"load_ids", "covered_by", "lease_expires_at", "present", "present_mine"}
    filled = {"ledger", "columns", "column", "type", "index", "known", "row_id", *own}
    left = {name for text in LEDGER.values() for _, name, _, _ in Formatter().parse(text) if name} - filled
    assert left == set(dialect.fragments)
    for text in LEDGER.values():
        complete = text.format(**dialect.fragments, **dict.fromkeys(filled, "x"))
        # psycopg2 reads a percent sign as the begin of a parameter.
        assert "%" not in complete


# --- states


def statuses(text):
    return [word for part in re.findall(STATUS, text) for word in re.findall(r"'([^']*)'", part)]


def arrow(name):
    """The states that an UPDATE leaves, and the one it sets; none for one that keeps the state."""
    head = re.match(r"UPDATE \{ledger\}(?: AS (\w+))? SET\s", LEDGER[name])
    assert head, name
    sets, where = re.split(r"\sWHERE\s", LEDGER[name][head.end() :], maxsplit=1)
    own = _without_subqueries(where)
    if head[1]:
        # Every condition names the table it is about.
        assert not re.search(r"(?<!\.)\bstatus\b", where), name
        own = own.replace(f"{head[1]}.", "")
    left = [word for part in re.findall(r"(?<!\.)\b" + STATUS, own) for word in re.findall(r"'(\w+)'", part)]
    assert "<>" not in own
    assert "NOT IN" not in own
    to = statuses(sets)
    assert len(to) <= 1, name
    return left, (to[0] if to else None)


def _without_subqueries(text):
    kept, depth = [], 0
    for part in re.split(r"(\(\s*SELECT|\(|\))", text):
        if part.startswith("(") and (depth or "SELECT" in part):
            depth += 1
        elif part == ")" and depth:
            depth -= 1
        elif not depth:
            kept.append(part)
    assert depth == 0
    return "".join(kept)


def test_the_words_in_the_sql_are_the_states():
    words = {word for text in LEDGER.values() for word in statuses(text)}
    seeded = re.findall(r":chunk_size, '(\w+)'", LEDGER["seed"])
    assert words | set(seeded) == {status.value for status in ChunkStatus}
    assert seeded == ["pending"]


def test_every_quoted_word_beside_a_status_was_looked_at():
    """A condition that the pattern above does not know must not pass unseen."""
    for name, text in LEDGER.items():
        known = len(re.findall(STATUS, text))
        # Column lists, and the one in RETURNING or SELECT, say no state.
        mentions = len(re.findall(r"\bstatus\b(?!,| TEXT)", text))
        assert mentions == known, name


@pytest.mark.parametrize("name", UPDATES)
def test_every_change_names_the_state_it_leaves_and_takes_a_known_arrow(name):
    left, to = arrow(name)
    assert left, f"{name} does not say which state it leaves"
    if to is None:
        # What a chunk covers stays completed.
        assert set(left) <= HELD or (name, left) == ("absorb", ["completed"])
        return
    for state in left:
        assert (ChunkStatus(state), ChunkStatus(to)) in TRANSITIONS


def test_every_arrow_is_taken_by_a_statement():
    arrows = set()
    for name in UPDATES:
        left, to = arrow(name)
        arrows |= set(itertools.product(map(ChunkStatus, left), [ChunkStatus(to)])) if to else set()
    assert arrows == TRANSITIONS


def test_every_change_of_a_held_chunk_names_the_token_it_holds():
    # Another tool's claim has no token, and is released by hand.
    token = re.compile(r"claim_token (=|IS NOT DISTINCT FROM) :token")
    without = {name for name in UPDATES if not token.search(LEDGER[name].partition("WHERE")[2])}
    # Nobody holds the chunk before a claim and after it was completed, by whomever; a lease that ran out is
    # nobody's; and whoever kept the others from renewing takes nothing from them.
    assert without == {
        "absorb",
        "absorb_restated",
        "claim",
        "cover",
        "done",
        "forget",
        "lapse",
        "restate",
        "spare",
    }
    assert "other.lease_expires_at <= {now}" in LEDGER["lapse"]


@pytest.mark.parametrize("name", UPDATES)
def test_every_change_tells_whether_it_changed_something_and_when(name):
    assert "RETURNING" in LEDGER[name]
    assert "updated_at = {now}" in LEDGER[name]


def test_the_groups_of_states_are_what_the_claim_looks_at():
    left, _ = arrow("claim")
    assert set(left) == CLAIMABLE
    assert set(arrow("lapse")[0]) == HELD


# --- clocks


def test_only_the_databases_clock_is_asked():
    for name, text in LEDGER.items():
        assert not re.search(r"(?i)\bnow\(\)|current_|localtime|clock_timestamp|:now|'now'", text), name
    for module in (ledger_module, lease_module):
        attributes = {
            node.attr
            for node in ast.walk(ast.parse(inspect.getsource(module)))
            if isinstance(node, ast.Attribute)
        }
        assert not attributes & {"now", "utcnow", "today", "time", "time_ns", "localtime", "gmtime"}

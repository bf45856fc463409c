"""The failure contract: a test stands behind each row of the page, and makes just that fail."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.pages import DOCS, LINK, ROOT, prose, table

#: By the row's first cell, links as their text: the tests, each as ``file::function`` in ``tests``.
TESTS = {
    "a rule about the source, the window or the target (refusals)": [
        "integration/test_preflight_refusals.py::test_a_refusal_leaves_no_table_no_row_and_no_directory",
        "integration/test_cli_refusals.py::test_windows_and_chunks_are_refused",
    ],
    "a destination that cannot carry the ledger": [
        "integration/test_cli_refusals.py::test_destinations_that_cannot_carry_the_ledger_are_refused",
        "unit/test_targets.py::test_what_cannot_carry_the_ledger_is_refused_in_one_way",
    ],
    "a ledger in which a chunk stands twice": [
        "integration/test_cli_mend.py::test_it_shows_the_rows_and_leaves_one_a_chunk",
        "integration/test_ledger.py::test_a_foreign_table_with_a_chunk_twice_is_refused_and_left_alone",
    ],
    'an assertion with on_failure="fail"': [
        "integration/test_gates.py::test_one_that_fails_publishes_nothing",
    ],
    "an assertion that cannot be made, such as about a column that is not there": [
        "integration/test_gates.py::test_what_cannot_be_asked_of_the_rows_is_refused",
    ],
    'an assertion with on_failure="quarantine"': [
        "integration/test_gates.py::test_rows_in_quarantine_take_their_nested_rows_along",
    ],
    "writing _dlt_rejected": [
        "integration/test_gates.py::test_a_failed_attempt_rejects_nothing",
    ],
    "reading the source": [
        "integration/test_attempt.py::test_a_source_error_fails_the_row_with_one_line_and_a_retry_resumes",
    ],
    "writing the rows": [
        "integration/test_attempt.py::test_rows_that_a_table_does_not_take_fail_the_attempt_as_a_whole",
    ],
    "writing the ledger, or a claim that was lost": [
        "integration/test_attempt.py::test_an_attempt_without_its_ledger_row_publishes_nothing",
        "integration/test_attempt.py::test_an_attempt_whose_claim_was_taken_publishes_nothing",
    ],
    'an assertion with on_failure="warn"': [
        "integration/test_gates.py::test_all_that_fail_are_named_and_a_warning_is_counted",
    ],
    "writing _dlt_ops_runs": [
        "integration/test_runs.py::test_a_table_that_cannot_be_written_is_one_line_and_the_run_goes_on",
        "integration/test_runs.py::test_a_table_that_somebody_has_locked_does_not_block_a_run",
    ],
    "writing _dlt_trace": [
        "integration/test_traces.py::test_one_that_cannot_be_written_is_one_line_and_the_run_goes_on",
    ],
    "writing metrics, to Airflow's statistics or to a file": [
        "integration/test_attempt_metrics.py::test_a_sink_that_fails_is_one_line_and_the_run_goes_on",
        "integration/test_attempt_metrics.py::test_a_file_that_cannot_be_written_is_one_line",
        "integration/test_operator_metrics.py::test_statistics_that_are_down_are_one_line_and_the_tasks_go_on",
    ],
    "counting how far a backfill is, for the metrics": [
        "integration/test_attempt_metrics.py::test_a_ledger_that_cannot_be_counted_is_one_line",
    ],
    "telling OpenLineage": [
        "integration/test_lineage.py::test_what_cannot_be_told_is_one_line_and_the_task_succeeds",
    ],
    "reading the ledger for status": [
        "integration/test_cli_status.py::test_a_database_that_does_not_answer_is_unreadable",
        "integration/test_cli_status.py::test_what_a_role_may_not_read_is_not_taken_for_absent",
        "integration/test_cli_status.py::test_a_ledger_is_unsupported",
    ],
    "reading _dlt_ops_runs for status": [
        "integration/test_cli_status.py::test_what_a_role_may_not_read_is_not_taken_for_absent",
    ],
}

ROWS = table(prose(DOCS / "failure-contract.md"), "what fails")


def name_of(cell: str) -> str:
    """A cell without its markup."""
    return re.sub(LINK.pattern.replace(r"[^\]]*", r"([^\]]*)"), r"\1", cell).replace("`", "")


@pytest.mark.parametrize("row", [name_of(first) for first, *_ in ROWS])
def test_each_row_has_a_test(row: str) -> None:
    assert TESTS.get(row), f"no test stands behind {row!r}: name one in {__file__}"
    for test in TESTS[row]:
        file, _, function = test.partition("::")
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test


def test_each_test_is_of_a_row() -> None:
    assert set(TESTS) <= {name_of(first) for first, *_ in ROWS}


def test_each_row_is_a_gate_or_an_observer_gates_first() -> None:
    kinds = [kind for _, kind, _ in ROWS]
    assert kinds == sorted(kinds)
    assert set(kinds) == {"gate", "observer"}

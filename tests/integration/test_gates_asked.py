"""Assertions as a DAG and the command ask for them."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from jinja2 import Environment

from airflow_provider_backfill.cli import main
from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import AirflowException, AirflowFailException
from tests.support.tasks import Tasks, rows_of

ODD = [{"sql": "id % 2 = 1", "on_failure": "quarantine"}, {"max_rows_per_load": 0, "on_failure": "warn"}]


@pytest.mark.parametrize("given", [ODD, {"page_views": ODD}, json.dumps(ODD)], ids=["list", "dict", "text"])
def test_a_task_returns_what_was_rejected(warehouse: Target, sources: Path, given: Any) -> None:
    tasks = Tasks(source="page_view_source:page_views", assertions=given)
    results = [tasks.chunk(part, index) for index, part in enumerate(tasks.plan())]
    assert [(result["rows"], result["rejected"], result["warnings"]) for result in results] == [
        (1, 0, 1),
        (0, 1, 0),
        (1, 0, 1),
        (0, 1, 0),
        (1, 0, 1),
    ]
    assert tasks.report()["records"] == 3
    assert [row.records_loaded for row in rows_of(warehouse)] == [1, 0, 1, 0, 1]


def test_a_task_fails_with_the_reason_and_may_be_retried(warehouse: Target, sources: Path) -> None:
    tasks = Tasks(source="page_view_source:page_views", assertions=[{"min_rows_per_load": 2}])
    part = tasks.plan()[0]
    with pytest.raises(AirflowException, match=r"min_rows_per_load\(2\) does not hold: 1 rows") as failed:
        tasks.chunk(part, 0)
    assert not isinstance(failed.value, AirflowFailException)
    assert "min_rows_per_load(2)" in (rows_of(warehouse)[0].error or "")


def test_a_plan_with_what_is_no_assertion_fails_at_once(warehouse: Target, sources: Path) -> None:
    for given, message in (
        ([{"min_rows_per_load": 2, "on_failure": "quarantine"}], "cannot quarantine"),
        ({"page_view": ODD}, "'page_view' is for a resource that the source does not have"),
    ):
        with pytest.raises(AirflowFailException, match=message):
            Tasks(source="page_view_source:page_views", assertions=given).plan()


def test_airflow_renders_them() -> None:
    operator = ChunkedBackfillOperator(
        task_id="a",
        source="x:y",
        dataset_name="d",
        conn_id="c",
        assertions={"events": [{"min_rows_per_load": "{{ params.rows }}"}]},
    )
    operator.render_template_fields({"params": {"rows": 3}}, Environment())
    assert operator.assertions == {"events": [{"min_rows_per_load": "3"}]}
    [assertion] = operator.source_spec.assertions["events"]
    assert assertion.value == 3


def test_the_command(duck_target: Target, sources: Path) -> None:
    (sources / "odd.json").write_text(json.dumps({"page_views": ODD}))
    (sources / "torn.json").write_text("[{")
    window = ("--from", "2026-01-01", "--to", "2026-01-06", "--chunk", "1d")
    place = ("--destination", f"duckdb:///{duck_target.credentials}", "--dataset", duck_target.dataset_name)

    def command(name: str, given: str, code: int) -> Result:
        arguments = (name, "page_view_source:page_views", *window, *place, "--assert", given)
        with chdir(sources):
            done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done

    for given, message in (
        ("nowhere.json", "'nowhere.json' is no JSON object or list, and no file: "),
        ("torn.json", "torn.json: no JSON: "),
        ('[{"unique": "id"}]', "assertion {'unique': 'id'} is unknown; pass one of "),
        ('{"views": []}', "'views' is for a resource that the source does not have; it has: page_views"),
    ):
        for name in ("run", "validate"):
            assert message in command(name, given, 2).output
    assert "page_views: 1 row(s) do not pass sql(id % 2 = 1)" in command("run", "odd.json", 0).output
    assert [row.records_loaded for row in rows_of(duck_target)] == [1, 0, 1, 0, 1]

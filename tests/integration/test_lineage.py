"""What OpenLineage is told of a backfill's tasks, and that they run all the same when that fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import Asset
from airflow.providers.openlineage.extractors.base import DefaultExtractor
from openlineage.client.serde import Serde

from airflow_provider_backfill.engine.destinations.base import Dialect, Target
from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import AirflowException
from tests.support.tasks import BACKFILL_ID, WINDOW, Tasks, ids_in, run_task

#: The places of inputs: one that a provider knows how to name, and one that none does.
INLETS = [
    Asset(uri="postgres://erp:5433/shop/public/page_views"),
    Asset(uri="https://me@api.example.com/v1/page_views"),
]
SCHEMA = [
    {"name": "id", "type": "bigint"},
    {"name": "at", "type": "timestamp"},
    {"name": "_dlt_load_id", "type": "text"},
    {"name": "_dlt_id", "type": "text"},
]

pytestmark = pytest.mark.usefixtures("sources")

#: What is not the database's doing.
on_duckdb = pytest.mark.parametrize("warehouse", ["duckdb"], indirect=True)


def plain(found: Any) -> Any:
    """As it is written into an event."""
    return [plain(each) for each in found] if isinstance(found, list) else json.loads(Serde.to_json(found))


def place(warehouse: Target) -> tuple[str, str]:
    """Namespace and database as the specification spells them."""
    if warehouse.dialect.name == "duckdb":
        return f"duckdb://{warehouse.credentials}", "web"
    server, _, database = warehouse.credentials.rpartition("/")
    return f"postgres://{server.rpartition('@')[2]}", database


def chunk(mapped: dict[str, Any], **arguments: Any) -> ChunkedBackfillOperator:
    return ChunkedBackfillOperator(
        task_id="chunk", **{**Tasks().source, **mapped, "inlets": INLETS, **arguments}
    )


def test_a_chunk_tells_where_from_where_to_and_which_it_was(warehouse: Target) -> None:
    mapped = Tasks().plan(chunks_per_task=2)
    operator = chunk(mapped[0])
    extractor = DefaultExtractor(operator)
    begun = extractor.extract()
    assert [(each.namespace, each.name) for each in begun.inputs] == [
        ("postgres://erp:5433", "shop.public.page_views"),
        ("https://api.example.com", "v1/page_views"),
    ]
    assert (begun.outputs, begun.run_facets) == ([], {})
    run_task(operator)
    done = extractor.extract_on_complete(None)
    assert plain(done.inputs) == plain(begun.inputs)
    namespace, database = place(warehouse)
    [output] = plain(done.outputs)
    assert (output["namespace"], output["name"]) == (namespace, f"{database}.web_raw.page_views")
    fields = [{key: field[key] for key in ("name", "type")} for field in output["facets"]["schema"]["fields"]]
    assert fields == SCHEMA
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
    facet = plain(done.run_facets["chunkedBackfill"])
    assert {name: value for name, value in facet.items() if not name.startswith("_")} == {
        "backfillId": BACKFILL_ID,
        "source": "web_events",
        "dataset": "web_raw",
        "windowStart": "2026-01-01T00:00:00+00:00",
        "windowEnd": "2026-01-06T00:00:00+00:00",
        "chunks": [
            {
                "chunkId": f"{number:06d}",
                "start": f"2026-01-0{number + 1}T00:00:00+00:00",
                "end": f"2026-01-0{number + 2}T00:00:00+00:00",
                "runId": run_id,
            }
            for number, run_id in enumerate(("2fe712c1ca2c99a0", "91f2aafcc3320c98"))
        ],
    }


@on_duckdb
def test_a_chunk_that_is_there_already_was_not_written(warehouse: Target) -> None:
    [mapped, *_] = Tasks().plan()
    run_task(chunk(mapped))
    again = chunk(mapped)
    assert run_task(again)["status"] == "skipped"
    done = again.get_openlineage_facets_on_complete(None)
    assert done.outputs == []
    assert done.run_facets["chunkedBackfill"].backfillId == BACKFILL_ID


@on_duckdb
def test_a_task_that_fails_tells_what_was_through_before(warehouse: Target, tmp_path: Path) -> None:
    outage = tmp_path / "outage"
    outage.touch()
    tasks = Tasks(source_kwargs={"outage": str(outage)})
    [mapped] = tasks.plan(chunks_per_task=5)
    operator = chunk(mapped, source_kwargs={"outage": str(outage)})
    with pytest.raises(AirflowException, match="the API is down"):
        run_task(operator)
    told = DefaultExtractor(operator).extract_on_failure(None)
    [output] = plain(told.outputs)
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
    chunks = told.run_facets["chunkedBackfill"].chunks
    assert [("runId" in each) for each in chunks] == [True, True, True, False, False]


@on_duckdb
def test_one_that_is_refused_has_no_backfill_to_tell_of(warehouse: Target) -> None:
    operator = chunk({"start": "2026-01-01", "end": "2026-01-01"})
    with pytest.raises(AirflowException):
        run_task(operator)
    told = DefaultExtractor(operator).extract_on_failure(None)
    assert (len(told.inputs), told.outputs, told.run_facets) == (2, [], {})


@on_duckdb
def test_what_cannot_be_told_is_one_line_and_the_task_succeeds(
    warehouse: Target,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(self: Dialect, credentials: str) -> None:
        raise RuntimeError("no\naddress")

    monkeypatch.setattr(type(warehouse.dialect), "address", broken)
    operator = chunk({**WINDOW})
    assert run_task(operator)["status"] == "completed"
    assert DefaultExtractor(operator).extract_on_complete(None) is None
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "the lineage of chunk is not told: RuntimeError: no address"
    ]
    assert ids_in(warehouse) == [1, 2, 3, 4, 5]


@on_duckdb
def test_a_database_without_an_address_has_no_outputs(
    warehouse: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(warehouse.dialect), "address", Dialect.address)
    operator = chunk({**WINDOW})
    run_task(operator)
    told = operator.get_openlineage_facets_on_complete(None)
    assert told.outputs == []
    assert "chunkedBackfill" in told.run_facets

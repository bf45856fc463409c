"""What plain dlt leaves in a table, chunk by chunk, and that a refusal leaves nothing at all."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import dlt
import pytest
from dlt.common.configuration.container import Container
from dlt.extract.incremental.context import TimeIntervalContext

from airflow_provider_backfill.engine.backfill import Backfill
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.window import ChunkSize, Window
from airflow_provider_backfill.exceptions import PreflightError
from tests.integration.conftest import postgres_target


def day(number, hour=0):
    return datetime(2024, 1, number, hour, tzinfo=UTC)


FIRST = day(1)


def source_of(**hints):
    @dlt.source(name="shop")
    def shop():
        @dlt.resource(name="events", **hints)
        def events(at=dlt.sources.incremental("at", initial_value=FIRST)):
            yield [{"id": number, "at": day(number, 12)} for number in (1, 2)]

        return events

    return shop


def plain(path: Path, hints, days):
    """The ids that plain dlt has in the table after it has loaded these days, one after the other."""
    for number in days:
        pipeline = dlt.pipeline(
            f"plain_{path.stem}",
            pipelines_dir=str(path.parent / f"pipelines_{path.stem}"),
            destination=dlt.destinations.duckdb(str(path)),
            dataset_name="raw",
        )
        bounds = TimeIntervalContext(interval=(day(number), day(number + 1)), allow_external_schedulers=True)
        with Container().injectable_context(bounds):
            pipeline.run(source_of(**hints)())
    scd2 = isinstance(hints["write_disposition"], dict)
    with pipeline.sql_client() as client:
        rows = client.execute_sql(
            f"SELECT id FROM events {'WHERE _dlt_valid_to IS NULL' if scd2 else ''} ORDER BY id"
        )
    return [row[0] for row in rows]


@pytest.mark.parametrize(
    ("hints", "days", "left", "rule"),
    [
        ({"write_disposition": "append"}, [1, 2], [1, 2], None),
        ({"write_disposition": "replace"}, [1, 2], [2], "replace"),
        ({"write_disposition": {"disposition": "merge", "strategy": "scd2"}}, [1, 2], [2], "scd2"),
        ({"write_disposition": "merge", "primary_key": "id"}, [1, 1], [1], None),
        ({"write_disposition": "merge"}, [1, 1], [1, 1], "keyless-merge"),
    ],
    ids=["append", "replace", "scd2", "merge", "keyless merge"],
)
def test_what_plain_dlt_leaves_is_why_it_is_refused(tmp_path, duck_target, settings, hints, days, left, rule):
    assert plain(tmp_path / "plain.duckdb", hints, days) == left
    backfill = Backfill(
        source=SourceSpec(reference=source_of(**hints)),
        target=duck_target,
        window=Window.parse("2024-01-01", "2024-01-03"),
        chunk=ChunkSize.parse("1d"),
        settings=settings,
    )
    if rule is None:
        backfill.plan()
    else:
        with pytest.raises(PreflightError) as caught:
            backfill.plan()
        assert [finding.rule for finding in caught.value.findings] == [rule]


def everything(settings, root: Path):
    """All files and directories, and those of the working directory."""
    return sorted(path.relative_to(root) for path in root.rglob("*") if "postgres" not in path.parts), Path(
        settings.work_root
    ).exists()


@pytest.mark.parametrize("kind", ["duckdb", "postgres"])
def test_a_refusal_leaves_no_table_no_row_and_no_directory(request, tmp_path, settings, kind):
    if kind == "duckdb":
        target = request.getfixturevalue("duck_target")
    else:
        target = postgres_target(request.getfixturevalue("postgres_url"))
    before = everything(settings, tmp_path)
    backfill = Backfill(
        source=SourceSpec(reference=source_of(write_disposition="replace")),
        target=target,
        window=Window.parse("2024-01-01", "2024-01-03"),
        chunk=ChunkSize.parse("1d"),
        settings=settings,
    )
    with pytest.raises(PreflightError, match=r"\(see docs/refusals.md#replace\)$"):
        backfill.plan()
    assert everything(settings, tmp_path) == before
    if kind == "postgres":
        with target.connect(10) as session:
            assert target.dialect.schemas(session, "web") == []


def test_a_warning_is_logged_and_refuses_nothing(duck_target, settings, caplog):
    @dlt.resource(name="events")
    def events(at=dlt.sources.incremental("at", initial_value=FIRST, lag=60.0)):
        yield []

    backfill = Backfill(
        source=SourceSpec(reference=events),
        target=duck_target,
        window=Window.parse("2024-01-01", "2024-01-03"),
        chunk=ChunkSize.parse("1d"),
        settings=settings,
    )
    with caplog.at_level("WARNING", logger="airflow_provider_backfill"):
        backfill.plan()
    assert [record.getMessage().rpartition(" (")[2] for record in caplog.records] == [
        "see docs/refusals.md#lag)"
    ]

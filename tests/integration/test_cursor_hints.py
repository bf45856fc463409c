"""A cursor with a format bounds a chunk however it was declared, in the extraction that really runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import dlt
import pytest

from airflow_provider_backfill.engine.extract import extract
from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.progress import Progress
from airflow_provider_backfill.engine.source import SourceSpec
from tests.unit.test_source_cursors import FORMS, day


@pytest.mark.parametrize("form", FORMS)
def test_a_chunk_has_its_rows_alone_and_the_resource_stays_as_it_was(
    tmp_path: Path, form: Callable[[], Any]
) -> None:
    spec = SourceSpec(reference=form(), cursor_format={"*": "datetime"})
    for number in (2, 1):
        package = extract(
            spec.load(),
            Interval(day(number), day(number + 1)),
            destination=cast(Any, dlt.destinations.duckdb(":memory:")),
            stored_schema=None,
            directory=str(tmp_path / str(number)),
            check=lambda: None,
            progress=Progress(chunk=number),
            spec=spec,
        )
        assert package.row_counts == {"rows": 1}

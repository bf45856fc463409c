"""OpenLineage's facets of a task. Only its provider asks for them, so that nobody else imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from attrs import define, field
from openlineage.client.event_v2 import Dataset, InputDataset, OutputDataset
from openlineage.client.facet_v2 import RunFacet, output_statistics_output_dataset, schema_dataset

from airflow_provider_backfill.engine.intervals import bound_text
from airflow_provider_backfill.engine.loaded import LoadedTable, together

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.destinations.base import Target
    from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
    from airflow_provider_backfill.operators.task_try import TaskTry

#: The name of the run facet.
RUN_FACET = "chunkedBackfill"


@define
class ChunkedBackfillRunFacet(RunFacet):
    """Which part of which backfill a task was about.

    Args:
        backfillId: The backfill.
        source: What its source is called in the ledger; None if that was not reached.
        dataset: The dataset, as it is called in the database.
        windowStart: First instant of the backfill's window, ISO-8601 in UTC, or a number as text; None
            likewise.
        windowEnd: First instant behind it; None likewise.
        chunks: The chunks of the task, in order. Each has ``chunkId``, ``start`` and ``end``, and ``runId``
            if it was reached.
    """

    backfillId: str  # noqa: N815
    source: str | None
    dataset: str
    windowStart: str | None  # noqa: N815
    windowEnd: str | None  # noqa: N815
    chunks: list[dict[str, Any]] = field(factory=list)


def lineage_of(operator: ChunkedBackfillOperator, tried: TaskTry | None) -> OperatorLineage[Any, Any]:
    """What a task reads and writes, as far as it has come.

    Args:
        operator: The operator, rendered.
        tried: Its try; None before that has begun.
    """
    inputs = [found for inlet in operator.inlets if (found := _dataset(inlet))]
    lineage: OperatorLineage[Any, Any] = OperatorLineage(
        inputs=[InputDataset(namespace=each.namespace, name=each.name, facets=each.facets) for each in inputs]
    )
    if tried is None or not tried.parts:
        return lineage
    target = operator.hook.target
    lineage.run_facets[RUN_FACET] = _run_facet(target, tried)
    tables = together(table for outcome in tried.outcomes for table in outcome.tables)
    if address := target.dialect.address(target.credentials):
        lineage.outputs.extend(_output(*address, target.dataset_name, table) for table in tables)
    return lineage


def _run_facet(target: Target, tried: TaskTry) -> ChunkedBackfillRunFacet:
    rows = list(tried.rows.values())
    chunks = []
    for part in tried.parts:
        bounds = {"start": bound_text(part.interval.start), "end": bound_text(part.interval.end)}
        row = tried.rows.get(part.chunk_id)
        chunks.append({"chunkId": part.chunk_id, **bounds, **({"runId": row.run_id} if row else {})})
    return ChunkedBackfillRunFacet(
        backfillId=tried.parts[0].backfill_id,
        source=rows[0].source_section if rows else None,
        dataset=target.dataset_name,
        windowStart=bound_text(rows[0].window.start) if rows else None,
        windowEnd=bound_text(rows[0].window.end) if rows else None,
        chunks=chunks,
    )


def _output(namespace: str, database: str, schema: str, table: LoadedTable) -> OutputDataset:
    fields = [schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in table.columns]
    written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=table.rows)
    return OutputDataset(
        namespace=namespace,
        name=f"{database}.{schema}.{table.name}",
        facets={"schema": schema_dataset.SchemaDatasetFacet(fields=fields)},
        outputFacets={"outputStatistics": written},
    )


def _dataset(inlet: Any) -> Dataset | None:
    """An inlet as OpenLineage names it; by its URI alone where no provider knows how its kind is named."""
    found: Dataset | None = ExtractorManager.convert_to_ol_dataset(inlet)
    if found is not None:
        return found
    parts = urlsplit(getattr(inlet, "uri", "") or "")
    if not parts.scheme:
        return None
    # Without whoever logs in, which an address may have.
    host = parts.netloc.rpartition("@")[2]
    return Dataset(namespace=f"{parts.scheme}://{host}", name=parts.path.strip("/") or "/")

"""Extracting and normalising one chunk in a working directory of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill._text import line
from airflow_provider_backfill.engine.intervals import Interval

if TYPE_CHECKING:
    from dlt.common.destination import AnyDestination
    from dlt.common.pipeline import ExtractInfo, NormalizeInfo
    from dlt.common.schema import Schema
    from dlt.extract.source import DltSource
    from dlt.pipeline.pipeline import Pipeline
    from dlt.pipeline.trace import PipelineTrace

    from airflow_provider_backfill.engine.progress import Progress
    from airflow_provider_backfill.engine.source import SourceSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFile:
    """One file of a load package."""

    table: str
    path: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """What one extraction brought.

    Args:
        schema: The schema after normalising, stored tables included.
        load_id: dlt's id of the package; None when the source had no rows.
        files: The load files.
        row_counts: Rows a table, dlt's own tables left out.
        extracted: Rows that the source gave, nested ones not counted; default 0.
        dropped: Rows that lay outside the chunk and were left out; counted only where ``cursor_column`` is
            given.
        trace: dlt's trace of it; default None.
    """

    schema: Schema
    load_id: str | None
    files: tuple[LoadFile, ...]
    row_counts: Mapping[str, int]
    extracted: int = 0
    dropped: int = 0
    trace: PipelineTrace | None = None

    @property
    def records(self) -> int:
        return sum(self.row_counts.values())


def extract(
    source: DltSource,
    interval: Interval,
    *,
    destination: AnyDestination,
    stored_schema: Schema | None,
    directory: str,
    check: Callable[[], None],
    progress: Progress,
    plain: Callable[[], AnyDestination] | None = None,
    spec: SourceSpec | None = None,
    timezone: str = "UTC",
) -> Package:
    """Extract the chunk's rows and write load files, with the bounds injected into every incremental.

    The pipeline is the attempt's own: it neither finds a pending package nor reads or writes the bookmark of
    a pipeline that loads the same source forward.

    Args:
        source: A fresh source.
        interval: The chunk.
        destination: Decides file formats and naming; nothing is sent there.
        stored_schema: The schema that the dataset has of this source, if it has one.
        directory: The attempt's working directory.
        check: Called for every page of rows; raises to stop.
        progress: Told what is extracted and normalised.
        plain: Gives the destination with dlt's own file format, for values that do not fit into Arrow's
            types; default none, so that these are an error.
        spec: How the source is bounded; default by cursors whose types say their format.
        timezone: Canonical zone of the window; default ``UTC``.

    Raises:
        CursorFormatError: A cursor's values cannot say the chunk's bounds.
    """
    import dlt

    from airflow_provider_backfill.engine.binding import bound
    from airflow_provider_backfill.engine.outside import Dropped, drop_outside

    pipeline = dlt.pipeline(
        pipeline_name=f"{source.schema.name}_backfill",
        pipelines_dir=directory,
        destination=_remembering(destination),
        dataset_name="backfill",
        progress=_collector(check, progress),
    )
    pipeline.config.restore_from_destination = False
    # Signals belong to whoever runs the attempt, who gives the chunk back.
    pipeline.runtime_config.intercept_signals = False
    try:
        if stored_schema is not None:
            # The pipeline goes on with this very object, and the caller compares with what was stored.
            pipeline.schemas.save_schema(stored_schema.clone())
        column = spec.cursor_column if spec else None
        outside = drop_outside(source, column) if column else Dropped()
        with bound(source, interval, spec.cursor_format if spec else {}, timezone) as context, context:
            found = pipeline.extract(source)
        normalized = _normalize(pipeline, plain)
        load_ids = pipeline.list_normalized_load_packages()
        schema = pipeline.schemas[source.schema.name]
        if not load_ids:
            return Package(
                schema=schema.clone(), load_id=None, files=(), row_counts={}, dropped=outside.total
            )
        [load_id] = load_ids
        jobs = pipeline.get_load_package_info(load_id).jobs["new_jobs"]
        own = set(schema.dlt_table_names())
        counts = normalized.row_counts if normalized else {}
        written = normalized.metrics[load_id][0]["job_metrics"] if normalized else {}
        files = [
            LoadFile(
                table=job.job_file_info.table_name,
                path=job.file_path,
                rows=getattr(written.get(job.job_file_info.job_id()), "items_count", 0),
            )
            for job in jobs
        ]
        return Package(
            schema=schema.clone(),
            load_id=load_id,
            files=tuple(files),
            row_counts={table: count for table, count in counts.items() if table not in own},
            extracted=_extracted(found, source),
            dropped=outside.total,
            trace=pipeline.last_trace,
        )
    finally:
        pipeline.deactivate()


def _remembering(destination: Any) -> AnyDestination:
    """Let a destination that nothing is sent to resolve its configuration once.

    dlt does so for each of the ten times that it asks for the capabilities in a load, which is more than a
    third of what a small load takes.
    """
    resolve, known = destination.configuration, list[Any]()

    def configuration(*given: Any, **how: Any) -> Any:
        if not known:
            known.append(resolve(*given, **how))
        return known[0]

    destination.configuration = configuration
    return destination  # type: ignore[no-any-return]


def _normalize(pipeline: Pipeline, plain: Callable[[], AnyDestination] | None) -> NormalizeInfo | None:
    """Write load files; in dlt's own format where Arrow refuses a value that a database would round."""
    try:
        return pipeline.normalize()
    except Exception as error:
        reason = _refusal_of_arrow(error)
        if plain is None or reason is None:
            raise
        log.info("load files are written in dlt's own format, since Arrow says: %s", line(str(reason)))
    pipeline.destination = _remembering(plain())
    return pipeline.normalize()


def _refusal_of_arrow(error: BaseException | None) -> BaseException | None:
    """The error of Arrow behind one of dlt, which does not always name it as its cause."""
    from pyarrow import ArrowException

    while error is not None and not isinstance(error, ArrowException):
        # A worker process of dlt's sends its error without what caused it, but with the traceback as text.
        if type(error).__name__ == "_RemoteTraceback" and "pyarrow.lib.Arrow" in str(error):
            return error
        error = error.__cause__ or error.__context__
    return error


def _extracted(found: ExtractInfo, source: DltSource) -> int:
    return sum(
        counted.items_count
        for metrics in found.metrics.values()
        for step in metrics
        for name, counted in step["resource_metrics"].items()
        if name in source.resources
    )


def _collector(check: Callable[[], None], progress: Progress) -> Any:
    """dlt reports every page it has drawn to a collector, which makes it the place to stop an attempt at."""
    from dlt.common.runtime.collector_base import Collector

    class Watcher(Collector):
        def update(self, name: str, inc: int = 1, total: int | None = None, *_: Any, **more: Any) -> None:
            check()
            self._parts |= {name} if total is not None else set()
            # What has a total is no table: dlt's counts of resources and of files.
            if name not in self._parts:
                progress.add(name, inc)

        def _start(self, step: str) -> None:
            check()
            self._parts: set[str] = set()
            # "Extract web_events"
            progress.start(step.partition(" ")[0].lower())

        def _stop(self) -> None:
            progress.end()

    return Watcher()

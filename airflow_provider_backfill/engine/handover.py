"""Handing over to the schedule: a covered window moves the bookmark of the pipeline that loads forward.

dlt keeps a pipeline's bookmarks in its state, whose versions stand in the dataset's ``_dlt_pipeline_state``;
the pipeline restores the newest one when it runs, on whichever machine. A handover writes the next version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.engine.backfill import Backfill, first_fields
from airflow_provider_backfill.engine.binding import Place, as_dlt_has_it, cursor_places, value_type
from airflow_provider_backfill.engine.bounds import Bound
from airflow_provider_backfill.engine.destinations.base import Session, Target
from airflow_provider_backfill.engine.fields import ChunkFields
from airflow_provider_backfill.engine.intervals import Interval, merge
from airflow_provider_backfill.engine.ledger import Ledger
from airflow_provider_backfill.engine.publish import migrate, publish_lock, speaking_for
from airflow_provider_backfill.engine.records import ChunkRow, ChunkStatus
from airflow_provider_backfill.engine.schemas import read_stored_schema
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.stage import open_client, stage_prefix
from airflow_provider_backfill.exceptions import HandoverError

if TYPE_CHECKING:
    from dlt.common.pipeline import TPipelineState
    from dlt.common.schema import Schema
    from dlt.destinations.job_client_impl import SqlJobClientWithStagingDataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """Where the forward pipeline begins with a resource.

    Args:
        resource: The resource whose cursor it is: a selected one, or the parent of one.
        cursor: The cursor's path.
        before: The value that the pipeline had; None for none.
        value: The value that it has now.
    """

    resource: str
    cursor: str
    before: Any
    value: Any

    @property
    def moved(self) -> bool:
        return self.before is None or _plain(self.before) != _plain(self.value)

    def as_json(self) -> dict[str, str | None]:
        """For machines; values as texts, since a cursor may be anything."""
        before = None if self.before is None else _text(self.before)
        return {
            "resource": self.resource,
            "cursor": self.cursor,
            "before": before,
            "value": _text(self.value),
        }

    def __str__(self) -> str:
        before = "none" if self.before is None else _text(self.before)
        change = f"{before} → {_text(self.value)}" if self.moved else f"{_text(self.value)}, as it was"
        return f"{self.resource}.{self.cursor}: {change}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """A window, and the pipeline that goes on behind it.

    Args:
        pipeline_name: The forward pipeline's name.
        source: The source that both load.
        target: The dataset that both load into.
        window: The window.
        timezone: Canonical zone of the window, whose days dates are.
        fields: What the first chunk fills into the source's arguments; None if it fills nothing.
        settings: Waits.
    """

    pipeline_name: str
    source: SourceSpec
    target: Target
    window: Interval
    timezone: str
    fields: ChunkFields | None
    settings: Settings

    @classmethod
    def of(cls, backfill: Backfill, pipeline_name: str, *, into: str | None = None) -> Handover:
        """The handover of a backfill's window.

        Args:
            backfill: The backfill.
            pipeline_name: The forward pipeline's name.
            into: The dataset that the backfill was redirected into; default None.

        Raises:
            HandoverError: It was: the pipeline's own dataset would never get the window.
        """
        if into:
            raise HandoverError(
                pipeline_name,
                f"the window goes into dataset {into}, and the pipeline's own would never get it",
                "hand over when it is promoted, with promote --handover",
            )
        return cls(
            pipeline_name=pipeline_name,
            source=backfill.source,
            target=backfill.target,
            window=backfill.window.interval,
            timezone=backfill.window.timezone,
            fields=first_fields(backfill.source, backfill.window, backfill.chunk, backfill.settings),
            settings=backfill.settings,
        )

    def check(self) -> None:
        """Refuse now what could not be handed over once the window is covered. Only reads.

        Raises:
            HandoverError: A bookmark would move backwards or past rows that nobody loads, or there is none.
        """
        cursors = self._cursors()
        if not self.target.exists():
            return
        with self._client(self._schema()) as (client, session):
            state = self._stored_state(client, session)
            if state is not None:
                self._bookmarks(state, cursors, self._covered(session, assumed=True))

    def carry_out(self) -> list[Bookmark]:
        """Move the bookmarks to the window's end, all or none; those that are there already stay.

        Raises:
            HandoverError: As of `check`, or the window is not covered. Nothing was changed.
        """
        cursors = self._cursors()
        plain = self._schema()
        with self._client(plain) as (client, session):
            stored = read_stored_schema(client, plain.name)
        schema = _with_state_table(stored or plain)
        with self._client(schema) as (client, session):
            recorded = stored or schema
            if not self._state_columns(client, session):
                with self.target.connect(self.settings.file_lock_timeout_seconds) as guard:
                    recorded = migrate(client, guard, self.target, {}, stored)
            with session.transaction():
                self.target.dialect.lock(session, publish_lock(self.target))
                covered = self._covered(session, assumed=False)
                state = self._stored_state(client, session) or self._new_state()
                bookmarks = self._bookmarks(state, cursors, covered)
                if any(bookmark.moved for bookmark in bookmarks):
                    self._store(client, session, state, recorded)
        return bookmarks

    # What is to be where

    def _cursors(self) -> list[Place]:
        source = self.source.load(self.fields)
        found = list(cursor_places(source, self.source.cursor_format, self.window.whole))
        if not found:
            raise self._refused("the source has no cursor", "leave handover out")
        for place in found:
            if place.cursor is None:
                raise self._refused(
                    f"dlt's configuration gives the cursor of resource {place.resource}",
                    "declare the cursor in the source",
                )
        return found

    def _at(self, place: Place, bound: Bound) -> Any:
        """A bound as the bookmark of a cursor has it."""
        from dlt.common.data_types.type_helpers import coerce_from_date_types, py_type_to_sc_type

        if place.format is not None:
            return as_dlt_has_it(place.format.bound(bound, self.timezone))
        assert isinstance(bound, datetime)
        return coerce_from_date_types(py_type_to_sc_type(value_type(place.cursor) or datetime), bound)

    def _bookmarks(self, state: TPipelineState, cursors: list[Place], covered: Interval) -> list[Bookmark]:
        """Set them in the state; raises before the first if one may not be moved."""
        entries = [self._entry(state, place) for place in cursors]
        found: list[Bookmark] = []
        for place, entry in zip(cursors, entries, strict=True):
            assert place.cursor is not None
            before, value = entry.get("last_value"), self._at(place, self.window.end)
            if before is not None:
                self._refuse_move(place, before, value, self._at(place, covered.start))
            path = place.cursor.cursor_path
            found.append(Bookmark(resource=place.resource, cursor=path, before=before, value=value))
        for place, entry, bookmark in zip(cursors, entries, found, strict=True):
            if bookmark.moved:
                # No row at the window's end has been loaded, so there is none to be left out next time.
                entry.update(last_value=bookmark.value, unique_hashes=[])
                entry.setdefault("initial_value", getattr(place.cursor, "initial_value", None))
        return found

    def _refuse_move(self, place: Place, before: Any, value: Any, start: Any) -> None:
        where = f"its bookmark of resource {place.resource}, {_text(before)},"
        try:
            backwards, gap = _plain(before) > _plain(value), _plain(before) < _plain(start)
        except TypeError:
            raise self._refused(
                f"{where} is a {type(before).__name__}, and the window's end a {type(value).__name__}",
                "declare the cursor's format as the pipeline has it (cursor_format)",
            ) from None
        if backwards:
            raise self._refused(
                f"{where} lies behind the window's end {_text(value)}, and would move backwards",
                "leave handover out: the pipeline is further than the window",
            )
        if gap:
            raise self._refused(
                f"{where} lies before {_text(start)}, and what is between would never be loaded",
                "backfill that too, or let the window begin at the bookmark",
            )

    def _covered(self, session: Session, *, assumed: bool) -> Interval:
        """What is completed without a gap around the window, which ``assumed`` takes for completed."""
        ledger = Ledger(session, self.target)
        rows = ledger.dataset_chunks(self._source_name) if ledger.exists() else []
        done = [row.interval for row in rows if self._counts(row) and row.interval.whole == self.window.whole]
        for interval in merge([*done, self.window] if assumed else done):
            if interval.contains(self.window):
                return interval
        raise self._refused("the window is not covered", "run it again until it is")

    def _counts(self, row: ChunkRow) -> bool:
        wanted = set(self.source.resources)
        names = set(row.resource_name.split(",")) if row.resource_name else None
        enough = names is None or (wanted and wanted <= names)
        return bool(row.status is ChunkStatus.COMPLETED and enough)

    def _refused(self, reason: str, remedy: str) -> HandoverError:
        return HandoverError(self.pipeline_name, reason, remedy)

    # dlt's state

    @property
    def _source_name(self) -> str:
        return self.source.source_name(self.source.load(self.fields))

    def _schema(self) -> Schema:
        return self.source.load(self.fields).schema

    def _client(self, schema: Schema) -> Any:
        # Nothing is staged under this name.
        stage = f"{stage_prefix(self.target, schema.name)}none"
        return open_client(self.target, stage, schema, self.settings.file_lock_timeout_seconds)

    def _state_columns(self, client: SqlJobClientWithStagingDataset, session: Session) -> list[str]:
        name = client.schema.state_table_name
        return self.target.dialect.table_columns(session, self.target.dataset_name, name)

    def _stored_state(
        self, client: SqlJobClientWithStagingDataset, session: Session
    ) -> TPipelineState | None:
        """The newest state of the pipeline; None if it has never stored one."""
        from dlt.pipeline.state_sync import load_pipeline_state_from_destination

        if not self._state_columns(client, session):
            return None
        return load_pipeline_state_from_destination(self.pipeline_name, client)

    def _new_state(self) -> TPipelineState:
        """The state of a pipeline that has never run, as the pipeline will find it."""
        from dlt.pipeline.state_sync import default_pipeline_state

        state: Any = default_pipeline_state()
        state.update(
            pipeline_name=self.pipeline_name,
            dataset_name=self.target.dataset_name,
            default_schema_name=self._own_name,
            schema_names=[self._own_name],
        )
        return state  # type: ignore[no-any-return]

    @property
    def _own_name(self) -> str:
        """What dlt calls the source, whatever the ledger calls it."""
        return replace(self.source, name=None).load(self.fields).schema.name

    def _entry(self, state: TPipelineState, place: Place) -> dict[str, Any]:
        """A cursor's part of the state, which is made if it is not there."""
        assert place.cursor is not None
        path, sources = place.cursor.cursor_path, state.setdefault("sources", {})
        having = [
            key
            for key, source in sources.items()
            if source.get("resources", {}).get(place.resource, {}).get("incremental", {}).get(path)
        ]
        own = self._own_name
        if own not in having:
            if len(having) > 1:
                raise self._refused(
                    f"several of its sources have a bookmark of {place.resource}: {', '.join(having)}",
                    "leave handover out",
                )
            # A resource that is run by itself joins the schema of its pipeline.
            alone = state.get("default_schema_name") if self.source.is_resource(self.fields) else None
            own = having[0] if having else alone or own
        entry: Any = sources
        for key in (own, "resources", place.resource, "incremental", path):
            entry = entry.setdefault(key, {})
        return entry  # type: ignore[no-any-return]

    def _store(
        self, client: SqlJobClientWithStagingDataset, session: Session, state: Any, recorded: Schema
    ) -> None:
        """Write the next version of the state, as a load of its own."""
        from dlt.common.storages.load_package import create_load_id
        from dlt.common.utils import uniq_id
        from dlt.pipeline.state_sync import bump_pipeline_state_version_if_modified, state_doc

        newest = client.get_stored_state(self.pipeline_name)
        load_id = create_load_id()
        if newest is not None and load_id <= str(newest._dlt_load_id):
            # dlt restores the state with the greatest load id, which another machine's clock made.
            load_id = f"{newest._dlt_load_id}1"
        state.setdefault("_local", {})
        bump_pipeline_state_version_if_modified(state)
        row = {**state_doc(state, load_id), "_dlt_id": uniq_id(), "created_at": datetime.now(UTC)}
        naming, sql = client.schema.naming, client.sql_client
        named = {naming.normalize_identifier(key): value for key, value in row.items()}
        present = [name for name in self._state_columns(client, session) if name in named]
        columns = ", ".join(map(sql.escape_column_name, present))
        table = sql.make_qualified_table_name(client.schema.state_table_name)
        marks = ", ".join(["%s"] * len(present))
        sql.execute_sql(
            f"INSERT INTO {table} ({columns}) VALUES ({marks})", *(named[name] for name in present)
        )
        with speaking_for(client, recorded):
            client.complete_load(load_id)


def _with_state_table(schema: Schema) -> Schema:
    from dlt.common.schema.utils import normalize_table_identifiers, pipeline_state_table

    schema = schema.clone()
    if schema.state_table_name not in schema.tables:
        schema.update_table(normalize_table_identifiers(pipeline_state_table(add_dlt_id=True), schema.naming))
        schema._bump_version()
    return schema


def _plain(value: Any) -> Any:
    """A value to compare: whether dlt gives a naive time back with an offset depends on its version."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else repr(value)

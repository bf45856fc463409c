"""What the operators of a backfill share: where it loads to, what it reads, and how errors reach Airflow.

Modules of operators import the engine, the hook and the exceptions where they are used: a DAG file that is
parsed needs none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.links.backfill import BackfillLink
from airflow_provider_backfill.version_compat import (
    AirflowException,
    AirflowFailException,
    BaseOperator,
    Context,
    conf,
)

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.records import ChunkRow, Claimant
    from airflow_provider_backfill.engine.settings import Settings
    from airflow_provider_backfill.engine.source import SourceSpec
    from airflow_provider_backfill.engine.window import Window
    from airflow_provider_backfill.hooks.backfill import BackfillHook


class TargetOperator(BaseOperator):
    """A task that works on the ledger of a dataset.

    Args:
        dataset_name: The dataset that the backfill loads into (templated).
        conn_id: The Airflow connection of its database (templated); either this or ``destination``.
        destination: Anything that dlt takes as a destination. Not templated, since a URL has a password.
        into: Another dataset of the same database (templated), into which data and ledger go instead, so that
            they can be looked at first; default None.
    """

    template_fields: Sequence[str] = ("conn_id", "dataset_name", "into")
    operator_extra_links = (BackfillLink(),)
    ui_color = "#e8f3ec"

    def __init__(
        self,
        *,
        dataset_name: str,
        conn_id: str | None = None,
        destination: Any = None,
        into: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.dataset_name = dataset_name
        self.conn_id = conn_id
        self.destination = destination
        self.into = into

    @cached_property
    def hook(self) -> BackfillHook:
        from airflow_provider_backfill.hooks.backfill import BackfillHook

        return BackfillHook(
            conn_id=self.conn_id,
            dataset_name=self.dataset_name,
            destination=revealed(self.destination),
            into=self.into or None,
        )

    def rows(self, backfill_id: str) -> list[ChunkRow]:
        """The ledger's rows of a backfill, in order."""
        from airflow_provider_backfill.engine.ledger import Ledger

        target = self.hook.target
        with target.connect(self.settings.file_lock_timeout_seconds, read_only=True) as session:
            return Ledger(session, target).chunks(backfill_id)

    def redact(self, text: str) -> str:
        """Blank the target's password out of a text, once the target is known."""
        target = vars(self.hook).get("target")
        return target.redact(text) if target else text

    @cached_property
    def settings(self) -> Settings:
        """Airflow's section ``[chunked_backfill]``."""
        from airflow_provider_backfill.engine.settings import SECTION, Settings

        return Settings.read(lambda option: conf.get(SECTION, option, fallback=None))


class SourceOperator(TargetOperator):
    """A task that reads a source; the arguments of all that do so.

    Args:
        source: ``package.module:attribute``, or the source itself: a function that returns a dlt source, a
            ``@dlt.source``, a ``@dlt.resource``. A text keeps dlt out of the DAG's parsing.
        start: First instant of the window (templated): ISO-8601 with an offset, an aware datetime, or a date.
            Or a whole number, for a source whose cursor is an id. Default the start of the DAG run's data
            interval.
        end: First instant behind the window (templated), of the same kind. Default the interval's end.
        timezone: IANA zone of bare dates and of calendar chunks (templated); default ``UTC``.
        resource_names: The source's resources to load (templated), a list or a text with commas; default all
            that the source selects. (``resources`` is Airflow's own word, for processors and memory.)
        source_name: What the source is called in identities and in the ledger (templated); default dlt's
            name of it.
        source_kwargs: Arguments for a source that is called (templated); default none. With ``bounded_by``
            ``kwargs`` they may have fields that each chunk fills, such as ``{chunk.start}``.
        cursor_format: What the values of the resources' cursors are (templated), for example ``epoch_ms``: a
            text for all, or a dict by resource with ``*`` for those not named. Default what their types say.
        bounded_by: What bounds the source to a chunk (templated): ``cursor``, dlt's incrementals, or
            ``kwargs``, its arguments; default ``cursor``.
        cursor_column: With ``kwargs``, the column by which rows outside a chunk are told and dropped
            (templated); default None, which drops none.
        on_empty: What a chunk without rows means (templated): ``ok``, ``fail``, or ``warn`` if the chunk
            before or behind it has rows; default ``warn``.
        overlap: What a chunk means that other backfills of the source have loaded in part (templated):
            ``refuse``, ``trim`` (only its gaps are loaded) or ``reload`` (it replaces what lies within it);
            default ``refuse``. One that is wholly loaded is recorded as completed and not run.
        assertions: What must hold for the rows of a chunk before they are published (templated): a list for
            all resources, or lists by resource, see :mod:`gates`; default none.
        dataset_name: See `TargetOperator`, likewise the next three.
        conn_id: The Airflow connection.
        destination: A dlt destination.
        into: Another dataset.
    """

    template_fields: Sequence[str] = (
        *TargetOperator.template_fields,
        "start",
        "end",
        "timezone",
        "resource_names",
        "source_name",
        "source_kwargs",
        "cursor_format",
        "bounded_by",
        "cursor_column",
        "on_empty",
        "overlap",
        "assertions",
    )
    template_fields_renderers = {"source_kwargs": "json", "assertions": "json"}  # noqa: RUF012

    def __init__(
        self,
        *,
        source: Any,
        dataset_name: str,
        conn_id: str | None = None,
        destination: Any = None,
        into: str | None = None,
        start: Any = None,
        end: Any = None,
        timezone: str = "UTC",
        resource_names: Sequence[str] | str | None = None,
        source_name: str | None = None,
        source_kwargs: Mapping[str, Any] | None = None,
        cursor_format: Mapping[str, str] | str | None = None,
        bounded_by: str = "cursor",
        cursor_column: str | None = None,
        on_empty: str = "warn",
        overlap: str = "refuse",
        assertions: Mapping[str, Any] | Sequence[Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            dataset_name=dataset_name, conn_id=conn_id, destination=destination, into=into, **kwargs
        )
        self.source = source
        self.start = start
        self.end = end
        self.timezone = timezone
        self.resource_names = resource_names
        self.source_name = source_name
        self.source_kwargs = source_kwargs
        self.cursor_format = cursor_format
        self.bounded_by = bounded_by
        self.cursor_column = cursor_column
        self.on_empty = on_empty
        self.overlap = overlap
        self.assertions = assertions

    @property
    def source_label(self) -> str:
        """What the source is called as far as that is known without a look at it."""
        source = revealed(self.source)
        named = getattr(source, "__name__", None) or getattr(source, "name", None)
        return str(self.source_name or named or source)

    @property
    def source_spec(self) -> SourceSpec:
        from airflow_provider_backfill.engine.cursors import EVERY_RESOURCE
        from airflow_provider_backfill.engine.gates import parse_assertions
        from airflow_provider_backfill.engine.source import SourceSpec

        names, formats = self.resource_names or (), self.cursor_format or {}
        return SourceSpec(
            reference=revealed(self.source),
            arguments=dict(self.source_kwargs or {}),
            resources=tuple(
                filter(None, map(str.strip, names.split(",") if isinstance(names, str) else names))
            ),
            name=self.source_name or None,
            cursor_format={EVERY_RESOURCE: formats} if isinstance(formats, str) else dict(formats),
            bounded_by=self.bounded_by,
            cursor_column=self.cursor_column or None,
            on_empty=self.on_empty,
            assertions=parse_assertions(self.assertions),
        )

    def window(self, context: Context) -> Window:
        """The window asked for. The DAG run's data interval is touched only where a bound is missing."""
        from airflow_provider_backfill.engine.window import Window

        from_data_interval = self.start is None and self.end is None
        start = _bound(context, "start") if self.start is None else self.start
        end = _bound(context, "end") if self.end is None else self.end
        return Window.parse(start, end, self.timezone, from_data_interval=from_data_interval)


def _bound(context: Context, bound: str) -> Any:
    from airflow_provider_backfill.exceptions import BoundFormatError

    value = context.get(f"data_interval_{bound}")
    if value is None:
        raise BoundFormatError(
            bound,
            None,
            "is not given, and this DAG run has no data interval",
            "pass start and end, or trigger the DAG with a logical date",
        )
    return value


class Concealed:
    """Keeps an object out of the serialised DAG, where Airflow would write its ``repr``.

    That of a dlt destination shows the password. Airflow serialises every argument of a mapped task.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"<{type(self.value).__name__}>"


def concealed(value: Any) -> Any:
    """What cannot be serialised faithfully, or not safely, as `Concealed`; the rest as it is."""
    harmless = value is None or (isinstance(value, str) and "://" not in value)
    return value if harmless else Concealed(value)


def revealed(value: Any) -> Any:
    return value.value if isinstance(value, Concealed) else value


def this_task(context: Context) -> Claimant:
    """Who this task is, for the ledger."""
    from airflow_provider_backfill.engine.runner import this_claimant

    ti = context["ti"]
    map_index = getattr(ti, "map_index", None)
    return this_claimant(
        dag_id=ti.dag_id,
        dag_run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=map_index if map_index is not None and map_index >= 0 else None,
    )


@contextmanager
def airflow_errors(redact: Callable[[str], str] = str) -> Iterator[None]:
    """Errors as Airflow knows them: no retry for what no retry can mend, and the cause's traceback alone.

    Args:
        redact: Blanks secrets out of a text. Airflow prints the causes of an error without its own masker.
    """
    from airflow_provider_backfill.engine.signals import Stopped
    from airflow_provider_backfill.exceptions import AttemptError, BackfillError, RefusedError

    try:
        yield
    except RefusedError as error:
        raise AirflowFailException(str(error)) from _safe(error.__cause__, redact)
    except AttemptError as error:
        from airflow_provider_backfill.engine.causes import innermost

        cause = error.__cause__ and innermost(error.__cause__)
        raise AirflowException(str(error)) from _safe(cause, redact)
    except BackfillError as error:
        raise AirflowException(str(error)) from None
    except Stopped as stop:
        raise AirflowException(f"stopped by {stop.signal_name}; the chunk was given back") from None


def _safe(cause: BaseException | None, redact: Callable[[str], str]) -> BaseException | None:
    """The error with all that led to it, free of secrets; None if one of them insists on showing one."""
    todo, chain = [cause], dict[int, BaseException]()
    while todo:
        error = todo.pop()
        if error is not None and id(error) not in chain:
            chain[id(error)] = error
            todo += [error.__cause__, error.__context__]
    for error in chain.values():
        error.args = tuple(redact(arg) if isinstance(arg, str) else arg for arg in error.args)
    texts = [str(text) for error in chain.values() for text in (error, *getattr(error, "__notes__", ()))]
    return cause if all(redact(text) == text for text in texts) else None

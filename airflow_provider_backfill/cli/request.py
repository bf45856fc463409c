"""What the command line asks for, turned into what the engine takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click

from airflow_provider_backfill.cli import logs
from airflow_provider_backfill.cli.options import TARGET
from airflow_provider_backfill.engine.choice import Choice, Chosen, read_bounds
from airflow_provider_backfill.engine.destinations.base import Target
from airflow_provider_backfill.engine.gates import parse_assertions
from airflow_provider_backfill.engine.intervals import Interval
from airflow_provider_backfill.engine.metrics import BestEffort
from airflow_provider_backfill.engine.metrics_file import JsonLines
from airflow_provider_backfill.engine.plan import BackfillPlan, exact_length
from airflow_provider_backfill.engine.settings import Settings
from airflow_provider_backfill.engine.source import SourceSpec
from airflow_provider_backfill.engine.strategies import Strategy
from airflow_provider_backfill.engine.thresholds import Objection, objections
from airflow_provider_backfill.engine.window import ChunkSize, Window

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.backfill import Backfill
    from airflow_provider_backfill.engine.handover import Handover
    from airflow_provider_backfill.engine.promote import Promotion


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a backfill loads to.

    Args:
        destination: A URL; None with ``conn_id``.
        conn_id: An Airflow connection; None with ``destination``.
        dataset: The dataset, as people name it.
        into: The dataset that stands in for it, likewise; default None.

    Raises:
        click.UsageError: Neither or both are given.
    """

    destination: str | None
    conn_id: str | None
    dataset: str
    into: str | None = None

    def __post_init__(self) -> None:
        if bool(self.destination) == bool(self.conn_id):
            raise misuse("Pass either --destination or --conn-id")

    def target(self) -> Target:
        """Find the database.

        Raises:
            TargetError: It cannot carry a backfill.
            click.UsageError: Airflow has no such connection.
        """
        target = (
            self._from_connection(self.conn_id) if self.conn_id else self._from_url(str(self.destination))
        )
        click.get_current_context().meta[TARGET] = target
        return self._redirected(target) if self.into is not None else target

    def _redirected(self, target: Target) -> Target:
        from airflow_provider_backfill.engine.targets import redirected

        return redirected(target, str(self.into))

    def _from_url(self, url: str) -> Target:
        from airflow_provider_backfill.engine.targets import target_from_url

        without_airflow()
        return target_from_url(url, self.dataset)

    def _from_connection(self, conn_id: str) -> Target:
        from airflow_provider_backfill.hooks.backfill import BackfillHook
        from airflow_provider_backfill.version_compat import AirflowNotFoundException

        logs.quiet_airflow()
        try:
            target: Target = BackfillHook(conn_id=conn_id, dataset_name=self.dataset).target
        except AirflowNotFoundException:
            raise misuse(f"Airflow has no connection {conn_id!r}") from None
        return target


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A backfill; the fields are the options.

    Args:
        source: ``package.module:attribute`` or ``path/to/file.py:attribute``.
        start: First instant of the window, as text; None where the strategy says it.
        end: First instant behind it, as text; None likewise.
        chunk: The chunk size, as text.
        timezone: The window's time zone.
        strategy: Which windows to load.
        since: With ``forward_only``, before which nothing is loaded, as text.
        lookback: How many chunks before a window are loaded again.
        grain: What bounds are aligned to.
        source_name: What the source is called; None for dlt's name of it.
        resources: Resources to load; empty for all that the source selects.
        arguments: Arguments for the source.
        cursor_format: Formats of the cursors by resource, ``*`` for all others.
        bounded_by: ``cursor`` or ``kwargs``.
        cursor_column: What rows outside a chunk are told by; None drops none.
        on_empty: ``ok``, ``warn`` or ``fail``.
        overlap: What a chunk means that other backfills have loaded in part.
        assertions: What must hold for the rows of a chunk, as plain data; None for nothing.
        concurrency: Worker processes.
        handover: The pipeline to hand over to; None for none.
        yes: Whether a plan above a threshold is confirmed.
        metrics: The file that metrics are added to; None for none.
        place: Where to load to.
    """

    source: str
    start: str | None
    end: str | None
    chunk: str
    timezone: str
    strategy: str
    since: str | None
    lookback: int
    grain: str | None
    source_name: str | None
    resources: tuple[str, ...]
    arguments: Mapping[str, Any]
    cursor_format: Mapping[str, str]
    bounded_by: str
    cursor_column: str | None
    on_empty: str
    overlap: str
    assertions: Any
    concurrency: int
    handover: str | None
    yes: bool
    metrics: Path | None
    place: Place

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Take what click has parsed."""
        given = dict(options)
        place = Place(**{name: given.pop(name) for name in ("destination", "conn_id", "dataset", "into")})
        return cls(place=place, **given)

    @classmethod
    def of_given(cls, options: Mapping[str, Any]) -> Self:
        """As `of`, of a command whose window is always given."""
        chosen = {"strategy": Strategy.WINDOW, "since": None, "lookback": 0, "grain": None}
        return cls.of({**chosen, "yes": False, **options})

    @classmethod
    def of_window(cls, options: Mapping[str, Any]) -> Self:
        """Take what click has parsed of a command that cuts no window and loads nothing."""
        unused = {"chunk": "", "on_empty": "ok", "overlap": "refuse", "concurrency": 1}
        return cls.of_given({**options, **unused, "into": None, "handover": None, "metrics": None})

    def gaps(self) -> tuple[Interval, ...]:
        """What of the window nobody has loaded.

        Raises:
            RefusedError: The settings, the window, the source or the destination are unusable.
        """
        window = Window.parse(self.start or "", self.end or "", self.timezone)
        return replace(self, chunk=exact_length(window.interval, window.timezone)).backfill().gaps()

    def chooser(self) -> Callable[[], Chosen]:
        """What chooses the windows, which reads from the database; raises as `choice`, at once."""
        return self.choice().make

    def backfill(self) -> Backfill:
        """The backfill of a window that is given; raises as `choice`."""
        [backfill] = self.choice().make().windows
        return backfill

    def choice(self) -> Choice:
        """What was asked for. Refusals that need neither dlt nor the database come at once.

        Raises:
            RefusedError: The settings, the window, the chunk or the destination are unusable.
            click.UsageError: The strategy lacks an option.
        """
        if self.strategy == Strategy.WINDOW:
            for option, value in (("--from", self.start), ("--to", self.end)):
                if value is None:
                    raise misuse(f"Missing option '{option}'")
        settings = Settings.from_environment()
        chunk = ChunkSize.parse(self.chunk)
        bounds = read_bounds(chunk, start=self.start, end=self.end, since=self.since, timezone=self.timezone)
        make_importable()
        return Choice(
            **bounds,
            source=SourceSpec(
                reference=self.source,
                arguments=self.arguments,
                resources=self.resources,
                name=self.source_name,
                cursor_format=self.cursor_format,
                bounded_by=self.bounded_by,
                cursor_column=self.cursor_column,
                on_empty=self.on_empty,
                assertions=parse_assertions(self.assertions),
            ),
            target=self.place.target(),
            chunk=chunk,
            strategy=self.strategy,
            lookback=self.lookback,
            grain=self.grain,
            # Who can be asked is asked once it is known how the plan stands.
            settings=settings.confirmed() if self.yes or can_ask() else settings,
            overlap=self.overlap,
            sink=BestEffort(JsonLines(self.metrics)) if self.metrics else None,
        )

    def objections(self, chosen: Chosen, plans: Sequence[BackfillPlan]) -> list[Objection]:
        """Why what is chosen has to be confirmed by whoever has not passed ``--yes``. Only reads.

        Args:
            chosen: What is chosen.
            plans: The plans of its windows.
        """
        settings = Settings.from_environment()
        found = []
        if settings.max_estimated_hours is not None:
            windows = zip(chosen.windows, plans, strict=True)
            found = [each.survey(plan, self.concurrency) for each, plan in windows]
        return objections(plans, chosen.estimate(found), settings)

    def check_handover(self, chosen: Chosen) -> None:
        """Refuse now what could not be handed over later. Of several windows the last is, which looks then.

        Raises:
            HandoverError: A bookmark would move backwards, or past rows that nobody loads.
        """
        handover = self.handing_over(chosen)
        if handover and len(chosen.windows) == 1:
            handover.check()

    def handing_over(self, chosen: Chosen) -> Handover | None:
        """What follows once the windows are covered; None if nothing does.

        Raises:
            HandoverError: The window goes into another dataset than the pipeline's.
        """
        if not self.handover or not chosen.windows:
            return None
        from airflow_provider_backfill.engine.handover import Handover

        into = self.place.into if self.redirects else None
        return Handover.of(chosen.windows[-1], self.handover, into=into)

    @property
    def redirects(self) -> bool:
        """Whether rows go into another dataset than the one that they belong to."""
        return self.place.into is not None


class PromoteRequest(Request):
    """The same backfill, with its rows coming out of the dataset that it was redirected into."""

    __slots__ = ()

    @property
    def redirects(self) -> bool:
        return False

    def chooser(self) -> Callable[[], Chosen]:
        """As of `Request`: the window as given."""
        backfill = self.backfill()
        return lambda: Chosen(windows=(backfill,))

    def backfill(self) -> Promotion:
        """As `Request.backfill`.

        Raises:
            click.UsageError: No other dataset is given.
        """
        from airflow_provider_backfill.engine.promote import Promotion

        if self.place.into is None:
            raise misuse("Pass the dataset that was loaded into before as --into")
        asked = Request.backfill(self)
        given = {each.name: getattr(asked, each.name) for each in fields(asked)}
        given["target"] = replace(self.place, into=None).target()
        return Promotion(origin=asked.target, **given)


def make_importable() -> None:
    """Let sources be imported from the current directory."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)


def without_airflow() -> None:
    """Keep dlt from importing Airflow where it is installed, to look for secrets there: it takes seconds."""
    os.environ.setdefault("PROVIDERS__ENABLE_AIRFLOW_SECRETS", "false")


def can_ask() -> bool:
    """Whether somebody is at a terminal."""
    return sys.stdin.isatty()


def misuse(message: str) -> click.UsageError:
    """An error of whoever typed the command, which ends it with exit code 2."""
    return click.UsageError(message, click.get_current_context())

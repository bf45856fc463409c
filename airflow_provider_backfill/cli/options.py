"""The options that subcommands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from airflow_provider_backfill._text import masked
from airflow_provider_backfill.cli import logs
from airflow_provider_backfill.cli.strategy import STRATEGY_OPTIONS
from airflow_provider_backfill.engine.cursors import EVERY_RESOURCE
from airflow_provider_backfill.engine.overlaps import Overlap

if TYPE_CHECKING:
    from airflow_provider_backfill.engine.destinations.base import Target

Command = TypeVar("Command", bound=Callable[..., Any])

_META = "airflow_provider_backfill.cli"
DEBUG = f"{_META}.debug"
TARGET = f"{_META}.target"


def hidden(ctx: click.Context, text: str) -> str:
    """The text without the destination's password."""
    target: Target | None = ctx.meta.get(TARGET)
    return masked(target.redact(text) if target else text)


def _set_debug(ctx: click.Context, parameter: click.Parameter, value: bool) -> bool:
    ctx.meta[DEBUG] = value
    return value


def _set_verbose(ctx: click.Context, parameter: click.Parameter, value: bool) -> bool:
    logs.configure(value)
    return value


def _names(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in (value or "").split(",") if name.strip()))
    if value is not None and not names:
        raise click.BadParameter("it names no resource")
    return names


def _formats(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    formats: dict[str, str] = {}
    for text in values:
        name, equals, shape = text.partition("=")
        # The shape of a text may have an equals sign of its own; a resource's name has no percent sign.
        resource, form = (name.strip(), shape) if equals and "%" not in name else (EVERY_RESOURCE, text)
        if not resource or not form.strip():
            raise click.BadParameter(f"{text!r} is not of the form [RESOURCE=]FORMAT")
        if resource in formats:
            which = "the others" if resource == EVERY_RESOURCE else resource
            raise click.BadParameter(f"the format of {which} is given twice")
        formats[resource] = form
    return formats


def _arguments(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for number, text in enumerate(values, start=1):
        key, equals, value = text.partition("=")
        # The value is not shown: it may be a secret.
        if not equals or not key.isidentifier():
            raise click.BadParameter(f"number {number} is not of the form key=value")
        if key in arguments:
            raise click.BadParameter(f"{key} is given twice")
        arguments[key] = _value(value)
    return arguments


def _value(text: str) -> Any:
    """JSON where the text is JSON, else the text itself."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _assertions(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Any:
    """Plain data, from the text itself or from the file that it names."""
    if value is None:
        return None
    text = value
    if value.lstrip()[:1] not in ("{", "["):
        try:
            text = Path(value).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise click.BadParameter(f"{value!r} is no JSON object or list, and no file: {error}") from None
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        where = "" if text is value else f"{value}: "
        raise click.BadParameter(f"{where}no JSON: {error}") from None


_SOURCE = click.argument("source", metavar="SOURCE")

_SOURCE_OPTIONS = (
    click.option(
        "--source-name",
        metavar="NAME",
        help="What the source is called in the ledger.  [default: dlt's name of it]",
    ),
    click.option(
        "--resources",
        callback=_names,
        metavar="A,B",
        help="Resources to load.  [default: all that the source selects]",
    ),
    click.option(
        "--set",
        "arguments",
        multiple=True,
        callback=_arguments,
        metavar="KEY=VALUE",
        help="Argument for the source; may be repeated. A value that is JSON is read as JSON (3, true, "
        'null, [1, 2], "3"), any other as text.  [default: none]',
    ),
    click.option(
        "--cursor-format",
        multiple=True,
        callback=_formats,
        metavar="[RESOURCE=]FORMAT",
        help="What the values of the cursor are: datetime, naive, naive@ZONE, date, epoch_s, epoch_ms, "
        "epoch_us, epoch_ns, id, or the shape of a text (%Y-%m-%dT%H:%M:%SZ); may be repeated.  "
        "[default: what the cursor's type says]",
    ),
    click.option(
        "--bounded-by",
        type=click.Choice(["cursor", "kwargs"]),
        default="cursor",
        show_default=True,
        help="What bounds the source to a chunk: dlt's incremental cursors, or the arguments of --set, which "
        "then may have fields, e.g. since={chunk.start_date}.",
    ),
    click.option(
        "--cursor-column",
        metavar="COLUMN",
        help="With --bounded-by kwargs: drop rows outside the chunk by this column.  [default: none]",
    ),
    click.option(
        "--assert",
        "assertions",
        callback=_assertions,
        metavar="JSON|FILE",
        help="What must hold for the rows of a chunk before they are published: JSON or a file of it, e.g. "
        '\'[{"min_rows_per_load": 1}, {"unique_columns": ["id"], "on_failure": "quarantine"}]\'.  '
        "[default: none]",
    ),
)

_ON_EMPTY = click.option(
    "--on-empty",
    type=click.Choice(["ok", "warn", "fail"]),
    default="warn",
    show_default=True,
    help="What a chunk without rows means; warn does so if the one before or behind it has some.",
)

_CONCURRENCY = click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Worker processes that load chunks at the same time.",
)


_OVERLAP = click.option(
    "--overlap",
    type=click.Choice([str(choice) for choice in Overlap]),
    default=str(Overlap.REFUSE),
    show_default=True,
    help="What a chunk means that other backfills have loaded in part: trim loads only its gaps, reload "
    "replaces what lies within it.",
)


def _window_options(
    required: bool, *, several: bool = False, chosen: bool = False
) -> tuple[Callable[[Command], Command], ...]:
    without = "" if required else "  [default: none]"
    bounded = required and not chosen
    start_by, end_by = (
        (
            "  [required with strategy window; else the start of the history]",
            "  [required likewise; else now]",
        )
        if chosen
        else (without, without)
    )
    return (
        click.option(
            "--from",
            "start",
            required=bounded,
            metavar="TIME",
            help="First instant of the window, included: ISO-8601 with an offset (2026-01-01T00:00:00Z), "
            "a date, which is midnight in --timezone, or a whole number, for a source whose cursor is an id."
            f"{start_by}",
        ),
        click.option(
            "--to",
            "end",
            required=bounded,
            metavar="TIME",
            help=f"End of the window, not included; spelled as --from.{end_by}",
        ),
        click.option(
            "--chunk",
            required=required,
            multiple=several,
            metavar="SIZE",
            help="Length of a chunk: <N>s, <N>m, <N>h are elapsed time; <N>d, <N>w, <N>mo are calendar steps "
            f"in --timezone. Without a unit, how many whole numbers.{without}",
        ),
        click.option(
            "--timezone",
            default="UTC",
            show_default=True,
            metavar="NAME",
            help="IANA time zone whose days, weeks and months the chunks follow, e.g. America/New_York.",
        ),
    )


def _target_options(required: bool) -> tuple[Callable[[Command], Command], ...]:
    unless = "required, unless {} is given" if required else "default: none"
    return (
        click.option(
            "--destination",
            metavar="URL",
            help="Database to load into: duckdb:///file.duckdb, duckdb:////abs/file.duckdb or "
            f"postgresql://user:password@host/db.  [{unless.format('--conn-id')}]",
        ),
        click.option(
            "--conn-id",
            metavar="ID",
            help=f"Airflow connection to load into.  [{unless.format('--destination')}]",
        ),
        click.option(
            "--dataset",
            required=required,
            metavar="NAME",
            help="Dataset (schema) that holds the tables and the ledger."
            + ("" if required else "  [default: none]"),
        ),
    )


YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.  [default: off]")

_INTO = click.option(
    "--into",
    metavar="NAME",
    help="Another dataset of the same database, which stands in for --dataset, ledger included, to be looked "
    "at first.  [default: none]",
)

_HANDOVER = click.option(
    "--handover",
    metavar="PIPELINE",
    help="Once the window is covered, set the bookmarks of this dlt pipeline to its end.  [default: none]",
)

_METRICS = click.option(
    "--metrics",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Add what is measured to this file, one JSON object a line.  [default: none]",
)

_COMMON_OPTIONS = (
    click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=_set_verbose,
        help="Log steps to stderr, not only warnings.  [default: off]",
    ),
    click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_set_debug,
        help="Print a traceback with an error.  [default: off]",
    ),
)


def backfill_options(command: Command) -> Command:
    """The source, the windows and the destination: all that makes a backfill."""
    return _loading(command, *_window_options(True, chosen=True), *STRATEGY_OPTIONS)


def plan_options(command: Command) -> Command:
    """As `backfill_options`, with more than one chunk size."""
    return _loading(command, *_window_options(True, several=True, chosen=True), *STRATEGY_OPTIONS)


def window_options(command: Command) -> Command:
    """As `backfill_options`, of one window that is given."""
    return _loading(command, *_window_options(True))


def _loading(command: Command, *window: Callable[[Command], Command]) -> Command:
    return _with(
        command,
        _SOURCE,
        *window,
        *_SOURCE_OPTIONS,
        _ON_EMPTY,
        _OVERLAP,
        _CONCURRENCY,
        *_target_options(True),
        _INTO,
        _HANDOVER,
        _METRICS,
    )


def gap_options(command: Command) -> Command:
    """The source, a window that is not cut, and the destination."""
    start, end, _, timezone = _window_options(True)
    return _with(command, _SOURCE, start, end, timezone, *_SOURCE_OPTIONS, *_target_options(True))


def known_options(command: Command) -> Command:
    """A backfill that the ledger has: its id, or what `backfill_options` makes it from."""
    return _with(
        command,
        click.argument("source", metavar="[SOURCE]", required=False),
        *_window_options(False),
        *_SOURCE_OPTIONS,
        _ON_EMPTY,
        _OVERLAP,
        _CONCURRENCY,
        *_target_options(True),
        _INTO,
        _HANDOVER,
        _METRICS,
        click.option(
            "--backfill-id",
            metavar="ID",
            help="The backfill, instead of SOURCE and its window; `status` shows it.  [default: none]",
        ),
    )


def look_options(command: Command) -> Command:
    """The source, and what else there may be of a backfill."""
    return _with(command, _SOURCE, *_window_options(False), *_SOURCE_OPTIONS, *_target_options(False))


def target_options(command: Command) -> Command:
    """The destination alone."""
    return _with(command, *_target_options(True))


def common_options(command: Command) -> Command:
    """What every subcommand has, last in its help."""
    return _with(command, *_COMMON_OPTIONS)


def _with(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command

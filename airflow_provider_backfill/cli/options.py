"""The options that subcommands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from airflow_provider_backfill._text import masked
from airflow_provider_backfill.cli import logs

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


_SOURCE_OPTIONS = (
    click.argument("source", metavar="SOURCE"),
    click.option(
        "--from",
        "start",
        required=True,
        metavar="TIME",
        help="First instant of the window, included: ISO-8601 with an offset (2026-01-01T00:00:00Z), "
        "or a date, which is midnight in --timezone.",
    ),
    click.option(
        "--to",
        "end",
        required=True,
        metavar="TIME",
        help="End of the window, not included; spelled as --from.",
    ),
    click.option(
        "--chunk",
        required=True,
        metavar="SIZE",
        help="Length of a chunk: <N>s, <N>m, <N>h are elapsed time; <N>d, <N>w, <N>mo are calendar steps "
        "in --timezone.",
    ),
    click.option(
        "--timezone",
        default="UTC",
        show_default=True,
        metavar="NAME",
        help="IANA time zone whose days, weeks and months the chunks follow, e.g. America/New_York.",
    ),
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
        "--concurrency",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="N",
        help="Worker processes that load chunks at the same time.",
    ),
)

_TARGET_OPTIONS = (
    click.option(
        "--destination",
        metavar="URL",
        help="Database to load into: duckdb:///file.duckdb, duckdb:////abs/file.duckdb or "
        "postgresql://user:password@host/db.  [required, unless --conn-id is given]",
    ),
    click.option(
        "--conn-id",
        metavar="ID",
        help="Airflow connection to load into.  [required, unless --destination is given]",
    ),
    click.option(
        "--dataset",
        required=True,
        metavar="NAME",
        help="Dataset (schema) that holds the tables and the ledger.",
    ),
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
    """The source, the window and the destination: all that makes a backfill."""
    return _with(command, *_SOURCE_OPTIONS, *_TARGET_OPTIONS)


def target_options(command: Command) -> Command:
    """The destination alone."""
    return _with(command, *_TARGET_OPTIONS)


def common_options(command: Command) -> Command:
    """What every subcommand has, last in its help."""
    return _with(command, *_COMMON_OPTIONS)


def _with(command: Command, *options: Callable[[Command], Command]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command

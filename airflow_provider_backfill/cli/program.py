"""The command itself: its subcommands, its exit codes, and how it says that something went wrong."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import click

from airflow_provider_backfill import __version__
from airflow_provider_backfill._text import masked
from airflow_provider_backfill.cli.control import cancel, pause, resume
from airflow_provider_backfill.cli.explain import explain
from airflow_provider_backfill.cli.gaps import gaps
from airflow_provider_backfill.cli.mark import mark
from airflow_provider_backfill.cli.mend import mend
from airflow_provider_backfill.cli.options import DEBUG, hidden
from airflow_provider_backfill.cli.plan import plan
from airflow_provider_backfill.cli.promote import promote
from airflow_provider_backfill.cli.release import release
from airflow_provider_backfill.cli.restate import restate
from airflow_provider_backfill.cli.run import run
from airflow_provider_backfill.cli.status import status
from airflow_provider_backfill.cli.validate import validate
from airflow_provider_backfill.engine.signals import Stopped, stoppable
from airflow_provider_backfill.exceptions import BackfillError

NAME = "chunked-backfill"

EPILOG = """\b
Exit codes:
  0  the window is covered, or what was asked for is done
  1  the window is not covered (the same command again resumes), a chunk was not released or not
     marked, or the database could not be used
  2  refused or misused: nothing was written

\b
Settings, from the environment (seconds, unless it says otherwise):
  AIRFLOW__CHUNKED_BACKFILL__LEASE_SECONDS               60     a claim lives without a renewal
  AIRFLOW__CHUNKED_BACKFILL__HEARTBEAT_SECONDS           20     between two renewals
  AIRFLOW__CHUNKED_BACKFILL__WAIT_TIMEOUT_SECONDS        3600   wait for chunks held elsewhere
  AIRFLOW__CHUNKED_BACKFILL__FILE_LOCK_TIMEOUT_SECONDS   600    wait for a DuckDB file in use
  AIRFLOW__CHUNKED_BACKFILL__MAX_CHUNKS                  10000  more chunks need --yes
  AIRFLOW__CHUNKED_BACKFILL__MAX_ESTIMATED_HOURS     none   longer plans need --yes
  AIRFLOW__CHUNKED_BACKFILL__WARN_CHUNKS                 1000   more chunks are warned about
  AIRFLOW__CHUNKED_BACKFILL__WORK_DIR                           directory to extract to
  AIRFLOW__CHUNKED_BACKFILL__TRACE                       False  keep dlt's trace in _dlt_trace
"""


class Program(click.Group):
    """A group whose every failure is one line on stderr, ``error: …``, and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        parse_and_invoke: Callable[..., Any] = super().main
        if not extra.pop("standalone_mode", True):
            return parse_and_invoke(*args, standalone_mode=False, **extra)
        # A terminal that cannot show an arrow must not end a run.
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")
        try:
            code = parse_and_invoke(*args, standalone_mode=False, **extra)
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx else NAME
            complain(f"{error.format_message().rstrip('.')}; see {path} --help")
            code = error.exit_code
        except click.ClickException as error:
            complain(error.format_message())
            code = error.exit_code
        except click.Abort:
            code = 1
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with stoppable():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Stopped:
            complain("interrupted")
            return 1
        except BackfillError as error:
            return _fail(ctx, error, str(error), error.exit_code)
        except Exception as error:  # noqa: BLE001
            from airflow_provider_backfill.engine.causes import root_cause

            return _fail(ctx, error, f"{root_cause(error)} (--debug shows where)", 1)


def _fail(ctx: click.Context, error: Exception, text: str, code: int) -> int:
    if ctx.meta.get(DEBUG):
        click.echo(hidden(ctx, "".join(traceback.format_exception(error))), err=True, nl=False)
    complain(hidden(ctx, text))
    return code


def complain(text: str) -> None:
    """Say on stderr, in one line, what went wrong."""
    click.echo(f"error: {masked(text)}", err=True)


@click.group(
    name=NAME,
    cls=Program,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name=NAME, message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> int | None:
    """Backfill a historical window with dlt in resumable, exactly-once chunks.

    The window is cut into chunks; the ledger, a table beside the data, remembers each. A crash costs one
    chunk, and the same command again is a resume.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        return 2
    return None


main.add_command(run)
main.add_command(plan)
main.add_command(gaps)
main.add_command(promote)
main.add_command(status)
main.add_command(pause)
main.add_command(resume)
main.add_command(cancel)
main.add_command(restate)
main.add_command(mark)
main.add_command(release)
main.add_command(mend)
main.add_command(validate)
main.add_command(explain)

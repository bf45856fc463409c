"""The options that choose windows by the name of a strategy."""

from __future__ import annotations

import click

from airflow_provider_backfill.engine.grains import Grain
from airflow_provider_backfill.engine.strategies import Strategy

STRATEGY_OPTIONS = (
    click.option(
        "--strategy",
        type=click.Choice([str(choice) for choice in Strategy]),
        default=str(Strategy.WINDOW),
        show_default=True,
        help="Which windows to load: window, from --from to --to; full, the source's whole history; gaps, "
        "what is missing; forward_only, nothing before --since; since_failed, what is missing from the first "
        "failed chunk on. For the last three, --from and --to say within what.",
    ),
    click.option(
        "--since",
        metavar="TIME",
        help="With forward_only: what is missing before is recorded as done without running.  "
        "[default: none]",
    ),
    click.option(
        "--lookback",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        metavar="N",
        help="Load completed chunks again that lie within so many chunks before a window, once when it is "
        "new.",
    ),
    click.option(
        "--grain",
        type=click.Choice([str(choice) for choice in Grain]),
        help="Align bounds to hours, days, weeks or months in --timezone.  [default: as they are]",
    ),
)

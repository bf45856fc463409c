"""Who types the command, and what they answer."""

from __future__ import annotations

import getpass
import os
import socket

import click

from airflow_provider_backfill.cli.request import can_ask, misuse


def person() -> str:
    """User and host, for the ledger."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def confirm(question: str, done: str) -> None:
    """Ask on the terminal.

    Args:
        question: With a question mark.
        done: What an answer other than yes keeps from being done, for example ``released``.

    Raises:
        click.UsageError: There is no terminal.
        click.ClickException: The answer is no.
    """
    if not can_ask():
        raise misuse(f"Nothing was {done}: nobody can be asked where stdin is no terminal, pass --yes")
    try:
        agreed = click.confirm(question)
    except click.Abort:
        click.echo()
        agreed = False
    if not agreed:
        raise click.ClickException(f"nothing was {done}")

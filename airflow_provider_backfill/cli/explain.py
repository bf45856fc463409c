"""``chunked-backfill explain``: what the page about refusals says of one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import click

from airflow_provider_backfill.cli.options import common_options
from airflow_provider_backfill.cli.request import misuse

_PACKAGE = Path(__file__).resolve().parents[1]
#: A wheel has the page beside the code, a checkout has it beside the other pages.
PAGES = (_PACKAGE / "refusals.md", _PACKAGE.parent / "docs" / "refusals.md")
_ENTRY = re.compile(r"^### ([^\n]+)\n(.+?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


@click.command(short_help="Say why something is refused, and what to change.")
@click.argument("rule", required=False)
@common_options
def explain(*, rule: str | None) -> int:
    """Say why something is refused, and what to change.

    RULE is what a message ends with (docs/refusals.md#no-cursor), or its last part alone (no-cursor). Without
    it, the names of all rules are listed.

    \b
    Example:
      chunked-backfill explain no-cursor
    """
    entries = _entries()
    if rule is None:
        click.echo("\n".join(entries))
        return 0
    wanted = rule.rpartition("#")[2].lower()
    for name, text in entries.items():
        if name.lower() == wanted:
            click.echo(f"{name}\n\n{text}")
            return 0
    raise misuse(f"There is no rule {rule!r}; without one, the names of all are listed")


def _entries() -> Mapping[str, str]:
    page = next(path for path in PAGES if path.is_file()).read_text(encoding="utf-8")
    # The other pages that an entry links to may not be installed.
    return {name: _LINK.sub(r"\1", text.strip()) for name, text in _ENTRY.findall(page)}

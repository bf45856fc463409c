"""``chunked-backfill`` with the plug-in, which its workers install too: they read this module first."""

from __future__ import annotations

import os

from airflow_provider_backfill.cli import main
from tests.chaos import plugin, sabotage

if os.environ.get(plugin.ENVIRONMENT):
    plugin.install(plugin.Order.load(os.environ[plugin.ENVIRONMENT]))
if os.environ.get(sabotage.ENVIRONMENT):
    sabotage.install(os.environ[sabotage.ENVIRONMENT])

if __name__ == "__main__":
    main(prog_name="chunked-backfill")

"""Sphinx settings: MyST Markdown and the furo theme. No page imports Airflow or dlt."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from airflow_provider_backfill import __version__

project = "airflow-provider-backfill"
author = "The airflow-provider-backfill contributors"
release = __version__
version = ".".join(release.split(".")[:2])

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = False

html_theme = "furo"
html_title = f"airflow-provider-backfill {release}"

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

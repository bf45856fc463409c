"""Sphinx settings: MyST Markdown, the furo theme, the reference from the docstrings."""

from __future__ import annotations

from airflow_provider_backfill import __version__

project = "airflow-provider-backfill"
author = "The airflow-provider-backfill contributors"
release = __version__
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
nitpicky = False

html_theme = "furo"
html_title = f"airflow-provider-backfill {release}"

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

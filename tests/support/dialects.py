"""Packages with a dialect, as an installer would leave them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from airflow_provider_backfill.engine.destinations import ENTRY_POINT_GROUP, dialects


@contextmanager
def installed(folder: Path, name: str, reference: str, **modules: str) -> Iterator[None]:
    """A distribution ``<name>-dialect`` on the path, with an entry point and modules.

    Args:
        folder: Where it stands; empty.
        name: The entry point's name.
        reference: Where it leads, ``module:attribute``.
        modules: Their names and texts.
    """
    metadata = folder / f"{name}_dialect-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-dialect\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{name} = {reference}\n")
    for module, text in modules.items():
        (folder / f"{module}.py").write_text(text)
    sys.path.insert(0, str(folder))
    dialects.cache_clear()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        dialects.cache_clear()
        for module in modules:
            sys.modules.pop(module, None)

"""The page's own scripts and styles, as they lie in the package."""

from __future__ import annotations

import hashlib
from importlib.resources import files

_TYPES = {"css": "text/css", "js": "text/javascript"}

#: Content and type of each file that is served, by its name; no other is.
ASSETS: dict[str, tuple[bytes, str]] = {
    name: (
        files("airflow_provider_backfill.plugins").joinpath("static", name).read_bytes(),
        _TYPES[name.rpartition(".")[2]],
    )
    for name in ("page.css", "page.js", "theme.js")
}
#: Changes with any of them, so that browsers may keep them.
VERSION = hashlib.sha256(b"".join(content for content, _ in ASSETS.values())).hexdigest()[:12]

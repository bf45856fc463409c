"""A DuckDB file in other hands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_by_another_process(path: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has a DuckDB file open until its standard input is closed."""
    code = (
        "import duckdb, sys; file = duckdb.connect(sys.argv[1]); print(flush=True);"
        "sys.stdin.read(); file.close()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        yield other

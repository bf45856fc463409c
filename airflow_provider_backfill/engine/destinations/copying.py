"""Sending parquet files to PostgreSQL by ``COPY``, which is several times as fast as ``INSERT`` statements.

The rows travel as CSV, in which a null is nothing and an empty text is ``""``. dlt's own CSV files do not
tell the two apart.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

#: Rows sent at a time, as many as dlt keeps in memory when it writes the file.
BATCH_ROWS = 5_000


def copy_parquet(cursor: Any, table: str, path: str, quote: Callable[[str], str]) -> None:
    """Insert the rows of a file.

    Args:
        cursor: One of psycopg2.
        table: The table's qualified and quoted name.
        path: The file.
        quote: Quotes a column's name.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    options = pa.csv.WriteOptions(include_header=False, quoting_style="needed")
    with pa.parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
        columns = ", ".join(map(quote, names))
        # The client's encoding may be that of the database.
        statement = f"COPY {table} ({columns}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            text = io.BytesIO()
            plain = pa.RecordBatch.from_arrays([_as_csv(column) for column in batch.columns], names=names)
            pa.csv.write_csv(plain, text, options)
            # PostgreSQL's texts have no NUL; dlt's own format leaves it out likewise.
            cursor.copy_expert(statement, io.BytesIO(text.getvalue().replace(b"\x00", b"")))


def _as_csv(column: Any) -> Any:
    """A column as Arrow's writer can write it and PostgreSQL can read it."""
    import pyarrow as pa
    from dlt.common.json import json

    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        return _as_csv(column.dictionary_decode())
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _texts(column, lambda value: f"\\x{value.hex()}")
    if types.is_nested(kind):
        return _texts(column, json.dumps)
    if types.is_timestamp(kind):
        # A time without a zone is UTC, whatever the server's zone; a column without one drops it again.
        return column.cast(pa.timestamp(kind.unit, "UTC"))
    return column


def _texts(column: Any, text: Callable[[Any], str]) -> Any:
    import pyarrow as pa

    return pa.array(
        (None if value is None else text(value) for value in column.to_pylist()), pa.large_string()
    )

"""``python -m airflow_provider_backfill.cli``, the command by another name."""

from __future__ import annotations

from airflow_provider_backfill.cli import main

if __name__ == "__main__":
    main(prog_name="chunked-backfill")

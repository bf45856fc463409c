"""What Airflow's provider manager reads about this package; the standard library only."""

from __future__ import annotations

from typing import Any

from airflow_provider_backfill import __version__

_INTEGRATION = "Chunked backfill"


def get_provider_info() -> dict[str, Any]:
    """Describe the provider: its modules, and its configuration section with every default."""
    return {
        "package-name": "airflow-provider-backfill",
        "name": "Chunked Backfill",
        "description": (
            "Backfill a historical window through Airflow and dlt in resumable, exactly-once chunks."
        ),
        "versions": [__version__],
        "integrations": [{"integration-name": _INTEGRATION, "tags": ["software"]}],
        "hooks": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": ["airflow_provider_backfill.hooks.backfill"],
            }
        ],
        "operators": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    "airflow_provider_backfill.operators.backfill",
                    "airflow_provider_backfill.operators.handover",
                    "airflow_provider_backfill.operators.plan",
                    "airflow_provider_backfill.operators.report",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": ["airflow_provider_backfill.triggers.chunk"],
            }
        ],
        "task-decorators": [
            {
                "class-name": "airflow_provider_backfill.decorators.backfill.chunked_backfill_task",
                "name": "chunked_backfill",
            }
        ],
        "extra-links": ["airflow_provider_backfill.links.backfill.BackfillLink"],
        "connection-types": [
            {
                "connection-type": "dlt",
                "hook-name": "dlt destination",
                "hook-class-name": "airflow_provider_backfill.hooks.backfill.BackfillHook",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "login", "password", "port"],
                    "relabeling": {"host": "Destination"},
                    "placeholders": {"host": "postgres"},
                },
            }
        ],
        "config": {
            "chunked_backfill": {
                "description": "Leases, limits and waits of chunked backfills.",
                "options": {
                    "lease_seconds": _option(
                        "How long a claim on a chunk stays valid without a heartbeat, in seconds. The chunk\n"
                        "of a killed worker can be claimed again after this time.",
                        kind="integer",
                        default="60",
                        example="120",
                    ),
                    "heartbeat_seconds": _option(
                        "How often a running chunk renews its lease, in seconds. Keep it at a third of\n"
                        "``lease_seconds`` or less.",
                        kind="integer",
                        default="20",
                        example="40",
                    ),
                    "max_chunks": _option(
                        "A window that splits into more chunks is refused before anything is written,\n"
                        "unless somebody confirms it (``--yes``, ``confirm``). At most 1000000.",
                        kind="integer",
                        default="10000",
                        example="20000",
                    ),
                    "max_estimated_hours": _option(
                        "A plan that is estimated to take longer, in hours, is refused before anything\n"
                        "is written, unless somebody confirms it (``--yes``, ``confirm``). By default\n"
                        "any passes.",
                        kind="float",
                        default="",
                        example="8",
                    ),
                    "warn_chunks": _option(
                        "A window that splits into more chunks logs a warning.",
                        kind="integer",
                        default="1000",
                        example="2000",
                    ),
                    "wait_timeout_seconds": _option(
                        "How long a chunk waits for another claim on the same interval before its attempt\n"
                        "fails, in seconds.",
                        kind="integer",
                        default="3600",
                        example="7200",
                    ),
                    "file_lock_timeout_seconds": _option(
                        "How long to wait for a DuckDB file that another process holds, in seconds.",
                        kind="integer",
                        default="600",
                        example="60",
                    ),
                    "work_dir": _option(
                        "Directory that attempts extract to. By default\n"
                        "``chunked-backfill-<user id>`` in the system's temporary directory.",
                        kind="string",
                        default="",
                        example="/var/lib/backfill",
                    ),
                    "trace": _option(
                        "Whether dlt's trace of each load is kept in ``_dlt_trace``, beside the data.",
                        kind="boolean",
                        default="False",
                        example="True",
                    ),
                },
            }
        },
    }


def _option(description: str, *, kind: str, default: str, example: str) -> dict[str, str]:
    return {
        "description": f"{description}\n",
        "version_added": "0.1.0",
        "type": kind,
        "example": example,
        "default": default,
    }

"""A process environment that touches nothing of the user's. Import it before Airflow and dlt."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

HOME = Path(tempfile.mkdtemp(prefix="backfill-tests-"))
AIRFLOW_HOME = HOME / "airflow"

_FOREIGN = ("AIRFLOW", "DLT_", "DESTINATION__", "SOURCES__")


def _isolate() -> None:
    for name in [name for name in os.environ if name.startswith(_FOREIGN)]:
        del os.environ[name]
    (AIRFLOW_HOME / "dags").mkdir(parents=True)
    (HOME / "dlt").mkdir()
    os.environ |= {
        "AIRFLOW_HOME": str(AIRFLOW_HOME),
        "AIRFLOW__CORE__DAGS_FOLDER": str(AIRFLOW_HOME / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # Without it Airflow 2.11 warns about its own metrics at every import.
        "AIRFLOW__METRICS__TIMER_UNIT_CONSISTENCY": "True",
        "DLT_DATA_DIR": str(HOME / "dlt"),
        "DLT_PROJECT_DIR": str(HOME / "dlt"),
        "NO_COLOR": "1",
        # dlt imports Airflow to look for secrets in its variables, six seconds in every process.
        "PROVIDERS__ENABLE_AIRFLOW_SECRETS": "false",
        "RUNTIME__DLTHUB_TELEMETRY": "false",
        "RUNTIME__LOG_LEVEL": "WARNING",
    }
    atexit.register(shutil.rmtree, HOME, ignore_errors=True)


_isolate()

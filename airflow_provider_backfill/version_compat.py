"""The one module that knows which Airflow line is running (2.11, or 3.0 and later).

Everything else imports the names that moved between the lines from here. Where
``airflow.providers.common.compat.sdk`` serves them on both lines, they come from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow import __version__ as _airflow_version
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import (
    DAG,
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
    Asset,
    BaseOperator,
    BaseOperatorLink,
    Context,
    TaskDeferred,
    TaskGroup,
    TriggerRule,
    XComArg,
    conf,
)
from packaging.version import Version

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseHook, Connection, Stats, get_unique_task_id

__all__ = [
    "AIRFLOW_V_3_0_PLUS",
    "AIRFLOW_V_3_1_PLUS",
    "ASSET_TYPES",
    "DAG",
    "KNOWN_CONTEXT_KEYS",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowRescheduleException",
    "AirflowSkipException",
    "Asset",
    "BaseHook",
    "BaseOperator",
    "BaseOperatorLink",
    "Connection",
    "Context",
    "DuplicateTaskIdFound",
    "Stats",
    "TaskDeferred",
    "TaskGroup",
    "TriggerRule",
    "XComArg",
    "conf",
    "get_unique_task_id",
    "mapped_states",
    "mask_secret",
]

# A development or release candidate version has what its final release has.
_airflow = Version(Version(_airflow_version).base_version)
AIRFLOW_V_3_0_PLUS = _airflow >= Version("3.0.0")
AIRFLOW_V_3_1_PLUS = _airflow >= Version("3.1.0")

if AIRFLOW_V_3_1_PLUS:
    from airflow.sdk.log import mask_secret
elif AIRFLOW_V_3_0_PLUS:
    from airflow.sdk.execution_time.secrets_masker import mask_secret  # type: ignore[no-redef]
else:
    from airflow.utils.log.secrets_masker import mask_secret  # type: ignore[no-redef,import-not-found]

if AIRFLOW_V_3_0_PLUS:
    from airflow.sdk.definitions.asset import AssetRef
    from airflow.sdk.definitions.context import KNOWN_CONTEXT_KEYS

    #: What an outlet may be to have an event of its own.
    ASSET_TYPES: tuple[type[Any], ...] = (Asset, AssetRef)
else:
    from airflow.utils.context import KNOWN_CONTEXT_KEYS  # type: ignore[no-redef,attr-defined]

    ASSET_TYPES = (Asset,)

#: Where they are needed they are imported. A DAG file that is parsed does without, and they cost it the most.
_LATER = frozenset({"BaseHook", "Connection", "Stats", "get_unique_task_id"})


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from airflow.providers.common.compat import sdk

    return getattr(sdk, name)


try:
    from airflow.sdk.exceptions import DuplicateTaskIdFound
except ImportError:
    # Airflow 2.11, and the first releases of 3.
    from airflow.exceptions import DuplicateTaskIdFound  # type: ignore[no-redef]


def mapped_states(ti: Any) -> dict[int, str | None]:
    """State of each mapped task instance of a running task's task, in its DAG run, by map index."""
    if hasattr(ti, "get_task_states"):
        found = ti.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id])
        prefix = f"{ti.task_id}_"
        return {
            int(name.removeprefix(prefix)): state
            for name, state in found.get(ti.run_id, {}).items()
            if name.startswith(prefix)
        }
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session

    with create_session() as session:
        rows = session.query(TaskInstance.map_index, TaskInstance.state).filter_by(
            dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id
        )
        return {index: state and str(state) for index, state in rows}

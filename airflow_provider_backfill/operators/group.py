"""The group of tasks that backfills a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_backfill.operators.handover import BackfillHandoverOperator
from airflow_provider_backfill.operators.plan import BackfillPlanOperator
from airflow_provider_backfill.operators.report import BackfillReportOperator
from airflow_provider_backfill.version_compat import TaskGroup, TriggerRule

if TYPE_CHECKING:
    from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator

#: Arguments of Airflow's operators that only one of the tasks can do something with.
_FIRST_ONLY = frozenset({"trigger_rule"})
_LAST_ONLY = frozenset({"outlets"})
_CHUNK_ONLY = frozenset(
    {
        "deferrable",
        "do_xcom_push",
        "map_index_template",
        "max_active_tis_per_dag",
        "max_active_tis_per_dagrun",
        "multiple_outputs",
        "on_clear",
        "task_display_name",
    }
)
_OF_GROUP = ("dag", "default_args")
#: What the default arguments of a DAG may not change: the group would not work, or its outlets lie.
_FIXED_FIRST: dict[str, Any] = {"do_xcom_push": True, "outlets": []}
_FIXED_CHUNK: dict[str, Any] = {"trigger_rule": TriggerRule.ALL_SUCCESS, "outlets": []}


def window_group(
    operator_class: type[ChunkedBackfillOperator],
    *,
    task_id: str,
    source_arguments: Mapping[str, Any],
    plan_arguments: Mapping[str, Any],
    limits: Mapping[str, int | None],
    operator_kwargs: Mapping[str, Any],
) -> TaskGroup:
    """Build the group; `ChunkedBackfillOperator.expand_window` says what it takes."""
    given = dict(operator_kwargs)
    # None would hide what default_args say.
    source_arguments = {name: value for name, value in source_arguments.items() if value is not None}
    group_kwargs = {name: given[name] for name in _OF_GROUP if name in given}
    given.pop("default_args", None)
    if "task_group" in given:
        group_kwargs["parent_group"] = given.pop("task_group")
    shared = {
        name: value for name, value in given.items() if name not in _FIRST_ONLY | _LAST_ONLY | _CHUNK_ONLY
    }

    def own(names: frozenset[str]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if name in names}

    target = {
        name: value
        for name, value in source_arguments.items()
        if name in ("dataset_name", "conn_id", "destination", "into")
    }
    with TaskGroup(group_id=task_id, **group_kwargs) as group:
        plan = BackfillPlanOperator(
            task_id="plan",
            **source_arguments,
            **plan_arguments,
            **shared,
            **own(_FIRST_ONLY),
            **_FIXED_FIRST,
        )
        mapped = {
            "map_index_template": "{{ task.interval_label }}",
            "max_active_tis_per_dagrun": limits["max_active_chunks"],
            **limits,
            **own(_CHUNK_ONLY),
            **_FIXED_CHUNK,
        }
        chunks = operator_class.partial(
            task_id="chunk", **source_arguments, **mapped, **shared
        ).expand_kwargs(plan.output)
        report = BackfillReportOperator(
            task_id="report",
            plan_task_id=plan.task_id,
            trigger_rule=TriggerRule.ALL_DONE,
            **target,
            **shared,
            **own(_LAST_ONLY),
        )
        chunks >> report
        if plan_arguments.get("handover") is not None:
            report >> BackfillHandoverOperator(
                task_id="handover",
                plan_task_id=plan.task_id,
                handover=plan_arguments["handover"],
                **source_arguments,
                **_FIXED_CHUNK,
                **shared,
            )
    return group

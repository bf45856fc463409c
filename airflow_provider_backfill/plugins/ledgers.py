"""Which ledgers may be looked into: those that a DAG in Airflow names, as its serialized form has them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import func, select

#: How Airflow serializes the link that every task of this package has, subclasses of its operators included.
_LINK = "_link_BackfillLink"
_NAMES = ("conn_id", "dataset_name", "into")
#: The tasks of a group that backfills a window.
_PARTS = frozenset({"plan", "chunk", "report", "handover"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLedger:
    """A dataset that a DAG backfills.

    Args:
        conn_id: The Airflow connection; None where the DAG's code has the destination itself.
        dataset_name: The dataset, as the DAG names it.
        into: The dataset that stands in for it; None for none.
        tasks: The tasks that name it; those of one backfill's group by the group.
        unreadable: Why it cannot be looked into from here; None if it can.
    """

    conn_id: str | None
    dataset_name: str
    into: str | None
    tasks: tuple[str, ...]
    unreadable: str | None = None

    @property
    def key(self) -> str:
        """What addresses know it by: nothing in them is ever read as a connection or a dataset."""
        text = "\0".join((self.conn_id or "", self.dataset_name, self.into or ""))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def named_in(serialized: Mapping[str, Any]) -> tuple[NamedLedger, ...]:
    """The ledgers that a serialized DAG names, in the order of its tasks.

    Args:
        serialized: What Airflow keeps of the DAG.
    """
    tasks: dict[tuple[str | None, str, str | None], list[str]] = {}
    dag = serialized.get("dag", {})
    defaults = _plain(dag.get("default_args") or {})
    for encoded in dag.get("tasks", ()):
        task = encoded.get("__var", encoded)
        if _LINK not in (task.get("_operator_extra_links") or {}).values():
            continue
        for values in _values(task, defaults):
            place = tuple(_text(values.get(name)) for name in _NAMES)
            group, _, name = str(task["task_id"]).rpartition(".")
            if not group or name not in _PARTS:
                group = str(task["task_id"])
            found = tasks.setdefault((place[0] or None, place[1] or "", place[2] or None), [])
            if group not in found:
                found.append(group)
    return tuple(
        NamedLedger(
            conn_id=conn_id,
            dataset_name=dataset_name,
            into=into,
            tasks=tuple(names),
            unreadable=_unreadable(conn_id, dataset_name, into),
        )
        for (conn_id, dataset_name, into), names in tasks.items()
    )


def _plain(encoded: Any) -> dict[str, Any]:
    """A mapping that Airflow has marked as one, or not."""
    value = encoded.get("__var", encoded) if isinstance(encoded, Mapping) else {}
    return dict(value) if isinstance(value, Mapping) else {}


def _values(task: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What the arguments of a task are, once for each of the mapped ones that are written in the DAG."""
    if not task.get("_is_mapped"):
        yield task
        return
    shared = task.get("partial_kwargs", {})
    if "destination" not in shared:
        # Those of the DAG come in when a mapped task is made, and are not in its serialized form.
        shared = {**defaults, **shared}
    expanded = task.get("expand_input", {}).get("value")
    for values in expanded if isinstance(expanded, list) and expanded else [{}]:
        yield {**shared, **_plain(values)}


def _text(value: Any) -> str | None:
    """An argument as text; what is no text, such as the result of a task, as a template of it."""
    return value if value is None or isinstance(value, str) else "{{ … }}"


def _unreadable(conn_id: str | None, dataset_name: str, into: str | None) -> str | None:
    if conn_id is None:
        return "its destination is written in the DAG's code, which the page does not run; name a conn_id"
    for name, value in zip(_NAMES, (conn_id, dataset_name, into), strict=True):
        if value and ("{{" in value or "{%" in value):
            return f"its {name} is a template, which only a task can fill in; write it out"
    return None


_known: dict[str, tuple[str, tuple[NamedLedger, ...]]] = {}
_lock = threading.Lock()


def ledgers_of(dag_id: str) -> tuple[NamedLedger, ...]:
    """The ledgers that a DAG names; none if there is no such DAG."""
    return ledgers_of_dags([dag_id]).get(dag_id, ())


def ledgers_of_dags(dag_ids: Collection[str]) -> dict[str, tuple[NamedLedger, ...]]:
    """The ledgers that DAGs name, by DAG in order, without those that name none.

    A serialized DAG is read again only when it has changed.
    """
    with create_session() as session:
        newest = (
            select(DagVersion.dag_id, func.max(DagVersion.version_number).label("number"))
            .join(SerializedDagModel, SerializedDagModel.dag_version_id == DagVersion.id)
            .where(DagVersion.dag_id.in_(dag_ids))
            .group_by(DagVersion.dag_id)
            .subquery()
        )
        versions = session.execute(
            select(
                SerializedDagModel.dag_id,
                SerializedDagModel.dag_hash,
                SerializedDagModel.id,
                DagVersion.version_number,
            )
            .join(DagVersion, SerializedDagModel.dag_version_id == DagVersion.id)
            .join(
                newest,
                (newest.c.dag_id == DagVersion.dag_id) & (newest.c.number == DagVersion.version_number),
            )
            .join(DagModel, DagModel.dag_id == SerializedDagModel.dag_id)
            .where(SerializedDagModel.dag_id.in_(dag_ids), ~DagModel.is_stale)
            .order_by(SerializedDagModel.dag_id, DagVersion.version_number)
        ).all()
        # The last version of each wins.
        latest = {dag_id: (dag_hash, row_id) for dag_id, dag_hash, row_id, _ in versions}
        found = {}
        for dag_id, (dag_hash, row_id) in latest.items():
            known = _known.get(dag_id)
            if known is None or known[0] != dag_hash:
                row = session.get(SerializedDagModel, row_id)
                known = dag_hash, named_in((row and row.data) or {})
                with _lock:
                    _known[dag_id] = known
            if known[1]:
                found[dag_id] = known[1]
        return found

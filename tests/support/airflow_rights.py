"""An auth manager for tests, which knows who may do what with which DAG."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

EVERYTHING = frozenset({"GET", "PUT", "POST", "DELETE"})


class RightsBook(SimpleAuthManager):
    """Grants what is written down, by user and DAG; ``*`` stands for every DAG."""

    grants: ClassVar[dict[str, dict[str, frozenset[str]]]] = {
        "editor": {"*": EVERYTHING},
        "viewer": {"*": frozenset({"GET"})},
        # All but the logs of tasks.
        "outsider": {"*": frozenset({"GET"})},
        # Not even that: somebody of another team.
        "neighbour": {"neighbours": EVERYTHING},
        "stranger": {},
    }

    def init(self) -> None:
        """Nobody has a password here."""

    def is_authorized_dag(
        self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None
    ) -> bool:
        if user.username == "outsider" and access_entity is DagAccessEntity.TASK_LOGS:
            return False
        granted = self.grants[user.username]
        dag_id = details.id if details else None
        if dag_id is None:
            return any(method in methods for methods in granted.values())
        return method in granted.get(dag_id, frozenset()) | granted.get("*", frozenset())

    def filter_authorized_dag_ids(self, *, dag_ids: set[str], user: Any, **more: Any) -> set[str]:
        return {dag_id for dag_id in dag_ids if self._sees(user, dag_id)}

    def _sees(self, user: Any, dag_id: str) -> bool:
        granted = self.grants[user.username]
        return "GET" in granted.get(dag_id, frozenset()) | granted.get("*", frozenset())

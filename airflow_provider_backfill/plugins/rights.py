"""Who may: Airflow's own user, and what Airflow's auth manager says of the DAG.

Every route is made of one of the classes here, which ask before anything of a request is read but its
address.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.auth.tokens import get_signing_key
from airflow.api_fastapi.core_api.security import (
    bearer_scheme,
    get_user,
    requires_access_dag,
    resolve_user_from_token,
)
from airflow.models.dag import DagModel
from fastapi import HTTPException, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute

#: The header that tells a request of the page's own script from one that another site has made.
TOKEN_HEADER = "X-Backfill-Token"  # noqa: S105
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITE = frozenset({"same-origin", "none"})


async def log_in(request: Request) -> Any:
    """Airflow's user, by bearer token or session cookie.

    Raises:
        HTTPException: 401 if nobody is logged in, 403 for a token that is none.
    """
    bearer = await bearer_scheme(request)
    if bearer is not None:
        # Not get_user: Airflow 3.1 and 3.2 prefer the cookie's user, who is then not checked for the site.
        user = await resolve_user_from_token(bearer.credentials)
    else:
        user = await get_user(request, None, None)
        if request.method not in _SAFE:
            _check_site(request, user)
    request.state.backfill_user = user
    return user


def user_of(request: Request) -> Any:
    """Who has made a request that was let in."""
    return request.state.backfill_user


def page_token(user: Any) -> str:
    """What the page's script sends along with each action; another site cannot know it."""
    return hmac.new(_key(), str(user.get_id()).encode(), hashlib.sha256).hexdigest()


def _key() -> bytes:
    return b"airflow-provider-backfill\0" + get_signing_key("api", "secret_key").encode()


def _check_site(request: Request, user: Any) -> None:
    """A browser sends the cookie along, whoever made it send the request."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    token = request.headers.get(TOKEN_HEADER, "")
    if site not in _OWN_SITE or not hmac.compare_digest(token.encode(), page_token(user).encode()):
        raise HTTPException(
            403, f"the request was not made by the page; reload it, or log in with a token ({TOKEN_HEADER})"
        )


def may_read(request: Request, dag_id: str) -> bool:
    """Whether whoever made the request may look at another DAG."""
    return _granted(request, "GET", dag_id)


def may_edit(request: Request, dag_id: str) -> bool:
    """Whether they may change what is backfilled, for what the page offers."""
    return _granted(request, "PUT", dag_id)


def may_read_logs(request: Request, dag_id: str) -> bool:
    """Whether they may see why a chunk failed: that text is the task's, and may quote rows."""
    return _granted(request, "GET", dag_id, DagAccessEntity.TASK_LOGS)


def _granted(
    request: Request, method: Literal["GET", "PUT"], dag_id: str, entity: DagAccessEntity | None = None
) -> bool:
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    granted = get_auth_manager().is_authorized_dag(
        method=method, details=details, access_entity=entity, user=user_of(request)
    )
    return bool(granted)


class _Guarded(APIRoute):
    """A route that lets nobody in who may not do what it does with the DAG that its address names."""

    #: What Airflow's auth manager is asked for, one after the other; each must be granted.
    asks: tuple[Callable[[Request, Any], None], ...]

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            user = await log_in(request)
            for ask in self.asks:
                await run_in_threadpool(ask, request, user)
            return await handle(request)

        return guarded


class ReadingRoute(_Guarded):
    """For looking; without a DAG in its address, for whoever may look at any."""

    asks = (requires_access_dag("GET"),)


class ActingRoute(_Guarded):
    """For changing what is backfilled, by whoever may look at the DAG and edit it."""

    asks = (requires_access_dag("GET"), requires_access_dag("PUT"))


class TriggeringRoute(_Guarded):
    """For starting a DAG run, as Airflow's own trigger."""

    asks = (requires_access_dag("GET"), requires_access_dag("POST", DagAccessEntity.RUN))

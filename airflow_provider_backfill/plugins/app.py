"""The FastAPI application that Airflow mounts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from airflow.api_fastapi.app import get_auth_manager
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exception_handlers import http_exception_handler, request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from airflow_provider_backfill import __version__
from airflow_provider_backfill.exceptions import (
    BackfillError,
    LedgerBusyError,
    LedgerUnreachableError,
    RefusedError,
)
from airflow_provider_backfill.plugins import api, pages
from airflow_provider_backfill.plugins.looks import Looks
from airflow_provider_backfill.plugins.rights import TOKEN_HEADER, ReadingRoute, log_in

#: Nothing from elsewhere, and no frame but Airflow's own.
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_DESCRIPTION = f"""Backfills of the DAGs in Airflow, and what can be done with them.

Log in with Airflow's bearer token. With the session cookie alone only looking is possible, and, for the pages
themselves, actions that carry the page's token in `{TOKEN_HEADER}`.
"""


def create_app() -> FastAPI:
    """Build the application. Every route asks who is there, and what they may; see `rights`."""
    # Its own pages of documentation would come from elsewhere.
    app = FastAPI(
        title="Chunked backfill",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # A redirect would be an answer without a login.
        redirect_slashes=False,
    )
    app.state.looks = Looks()
    for router in (api.read, api.act, api.start, pages.router):
        app.include_router(router)
    app.router.add_api_route(
        "/openapi.json",
        _openapi,
        methods=["GET"],
        include_in_schema=False,
        route_class_override=ReadingRoute,
    )
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_exception_handler(BackfillError, _failed)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.middleware("http")(_with_headers)
    return app


def _openapi(request: Request) -> JSONResponse:
    app: FastAPI = request.app
    if not app.openapi_schema:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        document.setdefault("components", {})["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
        }
        app.openapi_schema = {**document, "security": [{"token": []}]}
    # Where it stands depends on the path that Airflow is served under.
    return JSONResponse({**app.openapi_schema, "servers": [{"url": request.scope.get("root_path") or "/"}]})


async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


async def _refused(request: Request, error: Exception) -> Response:
    """Not even what does not exist is told to whoever is not logged in."""
    assert isinstance(error, StarletteHTTPException)
    if error.status_code in (404, 405) and not hasattr(request.state, "backfill_user"):
        try:
            await log_in(request)
        except HTTPException as stranger:
            error = stranger
    if not _for_people(request):
        return await http_exception_handler(request, error)
    login = get_auth_manager().get_url_login() if error.status_code == 401 else None
    return pages.error_page(request, error.status_code, str(error.detail), login)


async def _failed(request: Request, error: Exception) -> Response:
    status = 409
    if isinstance(error, LedgerBusyError | LedgerUnreachableError):
        status = 503
    elif isinstance(error, RefusedError):
        status = 400
    return await _refused(request, HTTPException(status, str(error)))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if not _for_people(request):
        return await request_validation_exception_handler(request, error)
    first = error.errors()[0]
    return pages.error_page(request, 422, f"{first['loc'][-1]}: {first['msg']}", None)


def _for_people(request: Request) -> bool:
    """A browser shows the answer, not a script."""
    accepts = request.headers.get("accept", "")
    return "text/html" in accepts and "/api/" not in request.url.path.removeprefix(
        str(request.scope.get("root_path", ""))
    )

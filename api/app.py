"""The HTTP application: routes, errors, request ids, OpenAPI. It reads no settings."""

from functools import cache

from fastapi import APIRouter, Depends, FastAPI

from api import errors, openapi
from api.app_state import AppState
from api.deps import authenticate
from api.envelope import RequestEnvelope
from api.routes import (
    account,
    agents,
    events,
    explain,
    health,
    jobs,
    managers,
    metrics,
    output,
    processes,
    retention,
    runs,
    schedules,
    service_tasks,
    single_tasks,
    task_groups,
    tasks,
    templates,
    temporal_ui,
    tokens,
    user_groups,
    users,
    workers,
)
from mitosis.version import __version__

PREFIX = "/api/v1"
DESCRIPTION = (
    "Durable execution of task groups on fleets of machines. Errors are RFC 9457 problem documents"
    " with a stable `code`. Lists are pages: pass `next` as `after` to get the following one."
)


def create_app(state: AppState | None) -> FastAPI:
    """Make the application. The caller opens ``state`` before serving and closes it afterwards.

    Without a state the application can only describe itself. Every route below ``/api/v1`` except health,
    login and the OpenAPI document requires a token; the router checks it. Below ``/temporal`` a session does.
    """
    app = FastAPI(
        title="Mitosis",
        description=DESCRIPTION,
        version=__version__,
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
    )
    app.state.app_state = state
    if state is None:
        app.add_middleware(RequestEnvelope)
    else:
        app.add_middleware(
            RequestEnvelope, admission=state.admission, observe=state.metrics.observe_request
        )
    errors.install_error_handlers(app)
    openapi.install_openapi(app)
    app.router.routes.extend(_routes().routes)
    return app


@cache
def _routes() -> APIRouter:
    """Include every route, once per process: the first request to an included router resolves it (50 ms)."""
    router = APIRouter()
    router.include_router(health.router)
    router.include_router(account.login_router, prefix=PREFIX)
    router.include_router(events.socket_router, prefix=PREFIX)
    router.include_router(metrics.router, dependencies=[Depends(authenticate)])
    router.include_router(_authenticated(), prefix=PREFIX)
    router.include_router(temporal_ui.pages)
    return router


def _authenticated() -> APIRouter:
    """Include every router; the calls of processes first: ``/managers/tasks/claim`` is no manager's name.

    Each route before the right one costs a call some 75 function calls: those that are seldom used come last.
    """
    router = APIRouter(dependencies=[Depends(authenticate)])
    for part in (
        agents,
        output,
        explain,
        single_tasks,
        service_tasks,
        account,
        managers,
        tasks,
        events,
        processes,
        templates,
        jobs,
        runs,
        schedules,
        workers,
        task_groups,
        users,
        user_groups,
        tokens,
        temporal_ui,
        retention,
    ):
        router.include_router(part.router)
    router.include_router(output.agent_router)
    return router

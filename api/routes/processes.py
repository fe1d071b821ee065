"""The processes of the deployment and their versions."""

from fastapi import APIRouter

from api.deps import AppStateDep, UserDep
from api.limits import LimitedRoute
from mitosis.contracts.processes import LiveProcesses
from mitosis.store.processes.live import live_processes

router = APIRouter(tags=["status"], route_class=LimitedRoute)


@router.get("/processes")
async def processes(state: AppStateDep, _: UserDep) -> LiveProcesses:
    """Return the API and control processes that run now, with their versions."""
    return await live_processes(state.store)

"""What is kept for how long, and what of it has been deleted."""

from fastapi import APIRouter

from api.deps import AppStateDep, UserDep
from api.limits import LimitedRoute
from mitosis.contracts.retention import Retention
from mitosis.store.retention.deletion import show_retention

router = APIRouter(tags=["status"], route_class=LimitedRoute)


@router.get("/retention")
async def retention(state: AppStateDep, _: UserDep) -> Retention:
    """Return for each kind of row that is not kept for ever how long it is kept, and its deletion."""
    return await show_retention(state.store)

"""The metrics for Prometheus."""

from fastapi import APIRouter, Request, Response

from api.deps import AppStateDep, UserDep
from mitosis.store.registry.figures import registry_figures
from mitosis.store.schedules.figures import schedule_figures

router = APIRouter(tags=["status"])


@router.get("/metrics", response_class=Response)
async def metrics(request: Request, state: AppStateDep, user: UserDep) -> Response:
    """Return metrics in the text format of Prometheus, or OpenMetrics if `Accept` asks for it.

    Figures about worker services and schedules cover the user groups of the token's user.
    """
    figures = await registry_figures(state.store, user.user_id)
    schedules = await schedule_figures(state.store, user.user_id)
    accept = request.headers.get("accept", "")
    text, content_type = state.metrics.exposed(figures, accept, schedules)
    return Response(text, headers={"Content-Type": content_type})

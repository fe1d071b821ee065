"""Liveness and readiness. Both need no token and disclose nothing else."""

import asyncio
from email.utils import formatdate
from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel

from api.deps import AppStateDep
from mitosis.contracts.errors import Unavailable

CHECK_SECONDS = 2.0

router = APIRouter(tags=["status"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """``degraded``: tasks are served, but lifecycle changes wait until Temporal is back."""

    status: Literal["ok", "degraded"]
    database: Literal["ok"] = "ok"
    temporal: Literal["ok", "unavailable"]


@router.get("/health")
async def health(response: Response) -> Health:
    """Return 200 while the process runs. The header `Date` has its clock (RFC 9110, 6.6.1)."""
    response.headers["Date"] = formatdate(usegmt=True)
    return Health()


@router.get("/ready")
async def ready(state: AppStateDep) -> Readiness:
    """PostgreSQL answers; Temporal may be away. 503 otherwise."""
    _, temporal = await asyncio.gather(state.store.database.check(), _temporal_answers(state))
    return Readiness(
        status="ok" if temporal else "degraded", temporal="ok" if temporal else "unavailable"
    )


async def _temporal_answers(state: AppStateDep) -> bool:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await state.control.check()
    except (Unavailable, TimeoutError):
        return False
    return True

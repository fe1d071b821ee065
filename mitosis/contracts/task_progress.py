"""How far an attempt of a named task is, as the API shows it."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict


class TaskProgressInfo(BaseModel):
    """How far an attempt is, as its executor has said."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    fraction: float | None = None
    """0 to 1."""
    stage: str | None = None
    message: str | None = None
    recorded_at: datetime
    checkpoint: Any = None
    """What the attempt has stored for the next one."""

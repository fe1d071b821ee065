"""The host that the failures of a task group come from."""

from uuid import UUID

from pydantic import BaseModel, ConfigDict


class FailingHost(BaseModel):
    """A host that may be broken: tasks failed and none succeeded there, and few failed elsewhere."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    manager_id: UUID
    manager_name: str
    tasks_failed: int
    """Of the newest 500 ended tasks of the group."""
    line: str
    """To be printed after the name of the host."""

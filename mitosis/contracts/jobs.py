"""Bodies of the calls about stored jobs. The definition itself is ``mitosis.jobs.definition``."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from mitosis.contracts.http import AnswerBody, RequestBody
from mitosis.contracts.identifiers import Name
from mitosis.contracts.queries import Query


class DefineJob(RequestBody):
    """Store a definition as the next version of the job of its name."""

    definition: dict[str, Any]
    group_name: Name | None = None
    """User group that owns the job; None = the caller's own."""


class JobInfo(AnswerBody):
    """One version of a job."""

    job_id: UUID
    name: str
    group_name: str
    version: int
    digest: str
    """SHA-256 of its canonical form, in hexadecimal: equal definitions have equal ones."""
    created_by: str
    created_at: datetime
    """When the version was stored."""


class JobVersion(JobInfo):
    """One version of a job with its definition."""

    definition: dict[str, Any]
    """Fields that differ from their defaults."""
    created: bool | None = None
    """Of a call that defines: whether this is a new version, or the same as the last one."""


class JobQuery(Query):
    """Query of one job."""

    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """None: the last one."""

"""The calls about stored jobs; :class:`Client` has them."""

from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

from mitosis.client.connection import Params
from mitosis.client.parameters import group_reference
from mitosis.client.repeated_calls import RepeatedCalls
from mitosis.contracts.http import Page
from mitosis.contracts.jobs import DefineJob, JobInfo, JobVersion
from mitosis.jobs.canonical import plain_fields
from mitosis.jobs.definition import JobDefinition

Job = UUID | str
"""Id, ``USERGROUP/NAME``, or the name of a job of the caller's own user group."""


class JobCalls(RepeatedCalls):
    """Define, list, show and delete jobs."""

    async def define_job(
        self, definition: JobDefinition | Mapping[str, Any], *, group_name: str | None = None
    ) -> JobVersion:
        """Store a definition as the next version of the job of its name.

        ``created`` is False if it is the same as the last version, which is returned then.

        Raises:
            InvalidRequest: lists what is wrong with the definition.
        """
        plain = (
            plain_fields(definition) if isinstance(definition, JobDefinition) else dict(definition)
        )
        return await self._post(
            JobVersion, "/jobs", DefineJob(definition=plain, group_name=group_name)
        )

    def jobs(self) -> AsyncIterator[JobInfo]:
        """Iterate over the jobs of the caller's user groups, each with its last version."""
        return self._pages(Page[JobInfo], "/jobs", {})

    async def job(self, job: Job, *, version: int | None = None) -> JobVersion:
        """Return a version of a job; by default the last one."""
        params: Params = {} if version is None else {"version": version}
        return await self._get(JobVersion, _path(job), params)

    def job_versions(self, job: Job) -> AsyncIterator[JobInfo]:
        """Iterate over the versions of a job, the last one first."""
        return self._pages(Page[JobInfo], _path(job) + "/versions", {})

    async def delete_job(self, job: Job) -> None:
        """Delete a job with all its versions."""
        await self._api.call("DELETE", _path(job))


def _path(job: Job) -> str:
    return f"/jobs/{group_reference(job, 'job')}"

"""The calls about stored jobs; :class:`Client` has them."""

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from mitosis.client.connection import Params
from mitosis.client.parameters import group_reference
from mitosis.client.program import main_as_module, search_path
from mitosis.client.repeated_calls import RepeatedCalls
from mitosis.contracts.checking import shown
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.http import Page
from mitosis.contracts.jobs import DefineJob, JobInfo, JobVersion
from mitosis.contracts.main_module import main_module
from mitosis.jobs.building import Job

if TYPE_CHECKING:
    from mitosis.jobs.definition import JobDefinition

Definition: TypeAlias = "Job | JobDefinition | Mapping[str, Any]"
"""A job in Python, a definition that was read, or the fields of one as JSON values."""
JobReference: TypeAlias = UUID | str
"""Id, ``USERGROUP/NAME``, or the name of a job of the caller's own user group."""

Startable: TypeAlias = "UUID | str | Job | JobDefinition | Mapping[str, Any]"
"""A reference to a stored job, or a definition."""


class JobCalls(RepeatedCalls):
    """Define, list, show and delete jobs."""

    async def define_job(
        self, definition: Definition, *, group_name: str | None = None
    ) -> JobVersion:
        """Store a definition as the next version of the job of its name.

        ``created`` is False if it is the same as the last version, which is returned then.

        Raises:
            InvalidRequest: lists what is wrong with the definition.
        """
        body = DefineJob(definition=fields_of(definition), group_name=group_name)
        return await self._post(JobVersion, "/jobs", body)

    def jobs(self) -> AsyncIterator[JobInfo]:
        """Iterate over the jobs of the caller's user groups, each with its last version."""
        return self._pages(Page[JobInfo], "/jobs", {})

    async def job(self, job: JobReference, *, version: int | None = None) -> JobVersion:
        """Return a version of a job; by default the last one."""
        params: Params = {} if version is None else {"version": version}
        return await self._get(JobVersion, _path(job), params)

    def job_versions(self, job: JobReference) -> AsyncIterator[JobInfo]:
        """Iterate over the versions of a job, the last one first."""
        return self._pages(Page[JobInfo], _path(job) + "/versions", {})

    async def delete_job(self, job: JobReference) -> None:
        """Delete a job with all its versions."""
        await self._api.call("DELETE", _path(job))


def fields_of(definition: Definition, *, search_here: bool = False) -> dict[str, Any]:
    """Return a definition as JSON values.

    ``search_here``: workers import the functions of a ``Job`` from the folders of this program, where the
    groups name no folders themselves. The calling thread must be that of the script.

    Raises:
        InvalidRequest: it is no definition, or lists what is wrong with the ``Job``.
    """
    from mitosis.jobs.canonical import plain_fields
    from mitosis.jobs.definition import JobDefinition

    if isinstance(definition, Job):
        fields = plain_fields(definition.definition())
        return _found_here(fields) if search_here else fields
    if isinstance(definition, JobDefinition):
        return plain_fields(definition)
    if isinstance(definition, Mapping):
        return dict(definition)
    raise InvalidRequest(
        f"must be a Job, or the fields of a definition, not {shown(definition)}", field="definition"
    )


def _found_here(fields: dict[str, Any]) -> dict[str, Any]:
    """Add this program's folders to the workers of each group that runs handlers."""
    handlers = [one for one in fields["steps"].values() if "handler" in one]
    for one in handlers:
        module, _, function = one["handler"].partition(":")
        if module == _script_module():
            main_as_module(function)
    groups = fields.setdefault("groups", {}) if handlers else {}
    for name in {one.get("group", "main") for one in handlers}:
        group = groups.setdefault(name, {})
        if "standing" not in group:
            group.setdefault("plan", {}).setdefault("python_path", list(search_path()))
    return fields


def _script_module() -> str | None:
    """Return the name under which workers import the script of this program; None without one."""
    try:
        return main_module("").module
    except InvalidRequest:
        return None


def _path(job: JobReference) -> str:
    return f"/jobs/{group_reference(job, 'job')}"

"""Setup and teardown hooks: one command each, run once per host and group by the manager agent."""

from datetime import timedelta

from pydantic import ConfigDict, Field, field_validator

from mitosis.contracts.checked_model import CheckedModel
from mitosis.contracts.duration import Duration
from mitosis.contracts.environment import Environment, ShownEnvironment


class HookInfo(CheckedModel):
    """A hook as a user may see it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: tuple[str, ...]
    environment: ShownEnvironment = Field(default={})
    working_directory: str | None = None
    timeout: Duration = timedelta(minutes=10)

    @field_validator("command")
    @classmethod
    def _usable(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if not command or not command[0] or any("\0" in word for word in command):
            raise ValueError("must name a program and contain no NUL byte")
        return command

    @field_validator("timeout")
    @classmethod
    def _positive(cls, timeout: timedelta) -> timedelta:
        if timeout <= timedelta(0):
            raise ValueError("must be longer than 0 seconds")
        return timeout

    @field_validator("working_directory")
    @classmethod
    def _absolute(cls, folder: str | None) -> str | None:
        if folder is not None and not folder.startswith("/"):
            raise ValueError("must be an absolute path")
        return folder


class HookSpec(HookInfo):
    """A command that prepares or cleans a host.

    It runs with MITOSIS_TASK_GROUP_UUID, MITOSIS_TASK_GROUP_NAME, MITOSIS_GROUP_NAME,
    MITOSIS_WORKER_COUNT and MITOSIS_MANAGER_ID in its environment. A non-zero exit, a signal or the
    timeout is an execution failure: never retried on this host.
    """

    environment: Environment = Field(default={})

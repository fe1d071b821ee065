"""Reports how hooks ended. A report that is not acknowledged is on disk, so that the next process sends it
instead of running the hook again.

One small file per task group, written when the hook of its setup or teardown has ended. It is removed when
the API has acknowledged the report or refused it for good, and before a hook of the group runs again.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from pydantic import ValidationError

from manager_agent.agent_api import AgentApi
from mitosis.contracts.agent_http import EnvironmentChange, HookReport
from mitosis.contracts.control import HookOutcome, HookVerdict
from mitosis.contracts.errors import InvalidTransition, LeaseLost, NotFound, Superseded
from mitosis.execution.backoff import until_reached
from mitosis.execution.identity import write_durably

GONE = (LeaseLost, NotFound, InvalidTransition, Superseded)
"""Refusals of a change of an environment that will not change."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndedHooks:
    """The reports of one manager that are not acknowledged."""

    folder: Path
    api: AgentApi

    def keep(self, task_group_id: UUID, **change: object) -> EnvironmentChange:
        """Return the change of the environment after a hook has ended; it is kept, durably.

        Without a hook, or if it could not begin, there is nothing to keep. On a full disk it is not kept: the
        report follows at once all the same.
        """
        ended = EnvironmentChange.model_validate(change)
        if ended.hook is not None and ended.hook.state != "waiting":
            try:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_durably(self._path(task_group_id), ended.model_dump_json().encode())
            except OSError as error:
                log.warning("ended_hook.not_kept", extra={"reason": str(error)})
        return ended

    def find(self, task_group_id: UUID) -> EnvironmentChange | None:
        """Return the change that an earlier process has kept for a task group, if any."""
        path = self._path(task_group_id)
        try:
            return EnvironmentChange.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            log.warning("ended_hook.unreadable", extra={"path": str(path), "reason": str(error)})
            return None

    async def report(self, task_group_id: UUID, ended: EnvironmentChange) -> None:
        """Send it until the API answers, so that an outage loses no hook result.

        Raises:
            LeaseLost, NotFound, InvalidTransition, Superseded: it is refused for good.
        """
        try:
            await until_reached(lambda: self.api.change_environment(task_group_id, ended))
        except GONE:
            self.forget(task_group_id)
            raise
        self.forget(task_group_id)

    async def record(self, task_group_id: UUID, ended: EnvironmentChange) -> None:
        """Report the end of a setup before its teardown: it is recorded, also after the loss of its lease."""
        with suppress(*GONE):
            await self.report(task_group_id, ended)

    def forget(self, task_group_id: UUID) -> None:
        """Remove what is kept for a task group."""
        self._path(task_group_id).unlink(missing_ok=True)

    def _path(self, task_group_id: UUID) -> Path:
        return self.folder / f"{task_group_id}.json"


def failure_of(hook: HookReport | None) -> HookOutcome:
    """Return the outcome of a hook that failed, with the last line that it wrote to its standard error."""
    found = outcome_of(HookVerdict.FAILED, hook)
    tail = "" if hook is None else hook.stderr_tail or ""
    for line in tail.strip().splitlines()[-1:]:
        return found.model_copy(update={"message": f"{found.message}: {line[:200]}"})
    return found


def outcome_of(verdict: HookVerdict, hook: HookReport | None) -> HookOutcome:
    """Return the outcome of a step whose hook has ended, or that has none."""
    if hook is None or hook.finished_at is None:
        return HookOutcome(verdict=verdict)
    seconds = max(0.0, (hook.finished_at - hook.started_at).total_seconds())
    return HookOutcome(verdict=verdict, message=hook.message or "", seconds=seconds)

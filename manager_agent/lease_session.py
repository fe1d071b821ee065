"""The session of one lease: the tasks of one task group, until the lease ends."""

import time

from mitosis.contracts.agent_http import LeaseGrant
from mitosis.contracts.control import LeaseProgress
from mitosis.execution.session import Session, SessionParts, SessionTerms


class LeaseSession(Session):
    """Runs the tasks of a lease. ``contact.py`` renews the lease and reads the state of the session."""

    def __init__(
        self, grant: LeaseGrant, parts: SessionParts, *, claim_seq: int = 0, generation: int = 0
    ) -> None:
        """Make the state; nothing runs before :meth:`start`.

        Args:
            grant: the lease, its group and plan.
            parts: its collaborators.
            claim_seq: the last claim number used under this epoch.
            generation: of the first workers; higher than any generation this agent has used.
        """
        plan = grant.worker_allocation_plan
        terms = SessionTerms(
            epoch=grant.epoch,
            worker_count=plan.worker_count,
            prefetch=plan.task_prefetch_count,
            fence_kills=grant.fence == "kill",
        )
        super().__init__(terms, parts, claim_seq=claim_seq, generation=generation)
        self.grant = grant
        self._began_at = time.monotonic()

    def progress(self) -> LeaseProgress:
        seconds = max(time.monotonic() - self._began_at, 1e-9)
        return LeaseProgress(
            running=self.state.running,
            done=self.state.finished,
            tasks_per_second=round(self.state.finished / seconds, 1),
            workers=sum(worker.available for worker in self.state.workers),
        )

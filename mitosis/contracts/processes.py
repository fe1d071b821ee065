"""The API and control processes that run now, as the API shows them."""

from typing import Literal, TypeAlias

from pydantic import AwareDatetime

from mitosis.contracts.http import AnswerBody

ProcessKind: TypeAlias = Literal["api", "control"]


class ProcessInfo(AnswerBody):
    """One process of a deployment."""

    kind: ProcessKind
    version: str | None = None
    """None: of a version that does not say so; host name and process id are unknown then, too."""
    host_name: str | None = None
    pid: int | None = None
    started_at: AwareDatetime
    silent_seconds: float
    """Since it wrote its row: a few at most, unless it was killed or does not reach PostgreSQL."""


class LiveProcesses(AnswerBody):
    """Processes of different versions run beside each other while an upgrade is in progress."""

    processes: tuple[ProcessInfo, ...]

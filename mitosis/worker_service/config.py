"""The configuration of the process of a worker service: plain values."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from mitosis.contracts.worker_health import SILENCE_SECONDS
from mitosis.unix_socket import socket_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """What a worker service is and how its process behaves; its named tasks are given beside it."""

    api_url: str
    worker_id: str
    token: str | None
    """Of a user, for the first start; later ones use the service's own. Over a unix socket none is needed."""
    state_dir: Path
    """Holds the service's token, its incarnation and the journal; on a disk that survives a reboot."""
    folder: Path
    """In which commands start."""
    ca_file: Path | None = None
    """Certificates to trust for an https address; None: those of the system."""
    run_parent: Path | None = None
    """Parent of the run folder, with a short path; None: $XDG_RUNTIME_DIR or /tmp."""
    slots: int = 1
    groups: tuple[str, ...] = ()
    tags: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    python_path: tuple[str, ...] = ()
    """Where handler modules are imported from."""
    take_over: bool = False
    stop_now: bool = False
    """Stop what runs at the first SIGTERM already."""
    stop_grace: timedelta = timedelta(seconds=4)
    """From SIGTERM to SIGKILL for what runs at a forced stop."""
    look_seconds: float = 5.0
    """Time between heartbeats while something runs: so late is a cancel at most."""
    silence: timedelta = timedelta(seconds=SILENCE_SECONDS)
    token_lifetime: timedelta = timedelta(days=30)
    min_free_bytes: int = 64_000_000

    @property
    def is_user(self) -> bool:
        """Whether the process can make calls as a user, before it has a token of its own."""
        return self.token is not None or socket_of(self.api_url) is not None

    def __repr__(self) -> str:
        return f"ServiceConfig({self.worker_id} at {self.api_url})"

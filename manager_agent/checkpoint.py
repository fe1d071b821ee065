"""Records of finished setup hooks, so that a restarted agent does not run them again (S000-91…96).

One small file per task group. It is valid for the same machine, boot, hook and instance only. The
instance matters where the state folder outlives what setup has changed: a folder on a volume, in a
container that was replaced or started again.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import msgspec

from mitosis.contracts.hook import HookSpec
from mitosis.execution.identity import write_durably


class Checkpoint(msgspec.Struct, frozen=True):
    """Setup with this fingerprint has succeeded in this boot of this machine."""

    task_group_id: UUID
    fingerprint: str
    machine_id: str
    boot_id: str
    instance: str = ""
    """Empty in a file of an older agent, which did not record it."""


def fingerprint(task_group_id: UUID, setup: HookSpec | None) -> str:
    """Return a hash of the setup hook of a group: 32 hexadecimal digits."""
    text = setup.model_dump_json() if setup is not None else "none"
    return hashlib.sha256(f"{task_group_id}\n{text}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The folder of checkpoints of one manager in one instance of one machine."""

    folder: Path
    machine_id: str
    boot_id: str
    instance: str
    """Of :func:`manager_agent.instance.instance_mark`."""

    def write(self, task_group_id: UUID, setup_fingerprint: str) -> None:
        """Record a finished setup, durably."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = Checkpoint(
            task_group_id, setup_fingerprint, self.machine_id, self.boot_id, self.instance
        )
        write_durably(self._path(task_group_id), msgspec.json.encode(made))

    def holds(self, task_group_id: UUID, setup_fingerprint: str) -> bool:
        """Check that this setup has finished in this instance of this machine."""
        found = self._read(self._path(task_group_id))
        return found is not None and found.fingerprint == setup_fingerprint

    def prepared(self) -> list[str]:
        """Return the task groups with a valid checkpoint."""
        found = [self._read(path) for path in self.folder.glob("*.json")]
        return [str(checkpoint.task_group_id) for checkpoint in found if checkpoint is not None]

    def forget(self, task_group_id: UUID) -> None:
        """Remove the checkpoint. Called before a setup or teardown changes anything."""
        self._path(task_group_id).unlink(missing_ok=True)

    def _path(self, task_group_id: UUID) -> Path:
        return self.folder / f"{task_group_id}.json"

    def _read(self, path: Path) -> Checkpoint | None:
        """Return the checkpoint; None if it is not of this instance of this machine."""
        try:
            found = msgspec.json.decode(path.read_bytes(), type=Checkpoint)
        except (OSError, msgspec.MsgspecError):
            return None
        here = (found.machine_id, found.boot_id) == (self.machine_id, self.boot_id)
        return found if here and found.instance in ("", self.instance) else None

"""Makes every start of some command fail as on a host that has no process for it, while it is on."""

import os
import subprocess
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class NoProcesses:
    """Refuses the commands that contain ``word``; counts them."""

    monkeypatch: pytest.MonkeyPatch
    word: str = "/bin/sh"
    error: int | None = None
    """The errno of the refusals; None: starts succeed."""
    left: int | None = None
    """So many more refusals; None: no bound."""
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        real = subprocess.Popen

        def popen(command: Any, *args: Any, **options: Any) -> "subprocess.Popen[bytes]":
            words = command if isinstance(command, str) else " ".join(map(str, command))
            if self.error is not None and self.left != 0 and self.word in words:
                self.left = None if self.left is None else self.left - 1
                self.refused.append(words)
                raise OSError(self.error, os.strerror(self.error))
            return real(command, *args, **options)

        self.monkeypatch.setattr(subprocess, "Popen", popen)

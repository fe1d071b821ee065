"""Errors of this machine that prevent the stack from starting.

::

    ConfigurationError          (mitosis.contracts.errors) the message says what would be right
    ├── DataFolderInUse         (mitosis.contracts.errors) another process holds the data folder
    ├── UnsafeFolder            a folder that must be ours alone is not
    ├── SocketPathTooLong       a unix socket path above the limit of the kernel
    ├── PortInUse               the chosen port, or the one of the last start, is taken
    ├── ProgramMissing          a bundled program or a system tool is not there
    └── StartFailed             a part did not become ready; carries the end of its log
"""

from pathlib import Path

from mitosis.contracts.errors import ConfigurationError, DataFolderInUse

__all__ = [
    "ConfigurationError",
    "DataFolderInUse",
    "PortInUse",
    "ProgramMissing",
    "SocketPathTooLong",
    "StartFailed",
    "UnsafeFolder",
]


class UnsafeFolder(ConfigurationError):
    """A folder that must be ours alone is not."""

    code = "unsafe_folder"


class SocketPathTooLong(ConfigurationError):
    """A unix socket path is longer than the kernel allows."""

    code = "socket_path_too_long"


class PortInUse(ConfigurationError):
    """A TCP port is taken."""

    code = "port_in_use"

    def __init__(self, what: str, port: int, setting: str) -> None:
        """Name the port; ``setting`` is the environment variable that chooses another one."""
        message = (
            f"port {port} for {what} is taken on 127.0.0.1: "
            f"stop the program that uses it, or set {setting} to a free port"
        )
        super().__init__(message, port=port, setting=setting)


class ProgramMissing(ConfigurationError):
    """A program that is needed is not installed."""

    code = "program_missing"


class StartFailed(ConfigurationError):
    """A part of the stack did not become ready."""

    code = "start_failed"

    def __init__(self, part: str, reason: str, log: Path, tail: str) -> None:
        """Show the reason and ``tail``, the end of the part's log."""
        message = f"{part} did not start: {reason}; its log {log} ends with:\n{tail}"
        super().__init__(message, part=part, reason=reason, log=str(log))

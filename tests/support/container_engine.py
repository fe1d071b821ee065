"""A container engine in the process of a test: a daemon, and a program `podman` that speaks to it.

There is no isolation: a container is a process of this machine, a child of the daemon and not of the client,
so it survives the client. Names, labels, exit statuses, ``run``, ``stop``, ``kill``, ``rm`` and ``ps`` are as
those of podman.
"""

import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLIENT = """#!{python} -SE
import json, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect({socket!r})
words = sys.argv[1:]
given = sys.stdin.read() if words[0] == "run" else ""
link.sendall(json.dumps([words, given]).encode() + b"\\n")
answer = json.loads(link.makefile().readline())
sys.stdout.write(answer[1])
sys.stderr.write(answer[2])
sys.stdout.flush()
sys.exit(answer[0])
"""
VALUED = (
    "--name",
    "--label",
    "--env-file",
    "--volume",
    "--memory",
    "--cpus",
    "--network",
    "--pull",
)


@dataclass
class Container:
    name: str
    labels: list[str]
    process: subprocess.Popen[str]


@dataclass
class Daemon:
    """What it runs, and what it was asked."""

    folder: Path
    containers: dict[str, Container] = field(default_factory=dict)
    calls: list[list[str]] = field(default_factory=list)

    def answer(self, words: Sequence[str], given: str) -> tuple[int, str, str]:  # noqa: PLR0911
        self.calls.append(list(words))
        match words:
            case ["info"]:
                return 0, "", ""
            case ["run", *rest]:
                return self._run(rest, given)
            case ["ps", *_, mark]:
                label = mark.removeprefix("label=")
                found = [c.name for c in list(self.containers.values()) if label in c.labels]
                return 0, "".join(f"{name}\n" for name in found), ""
            case ["stop", "--time", seconds, name]:
                return self._end(name, float(seconds))
            case ["kill", name]:
                return self._end(name, 0.0)
            case ["rm", "--force", *names]:
                return self._remove(names)
        return 125, "", f"unknown command {words}\n"

    def _remove(self, names: Sequence[str]) -> tuple[int, str, str]:
        for name in names:
            self._end(name, 0.0)
            self.containers.pop(name, None)
        return 0, "", ""

    def close(self) -> None:
        for name in list(self.containers):
            self._end(name, 0.0)

    def _run(self, words: Sequence[str], given: str) -> tuple[int, str, str]:
        options: dict[str, list[str]] = {}
        rest = list(words)
        while rest[0].startswith("--"):
            name = rest.pop(0)
            if name in VALUED:
                options.setdefault(name, []).append(rest.pop(0))
        image, *command = rest
        if image == "no-such-image":
            return 125, "", "Error: no-such-image: image not known\n"
        (name,) = options["--name"]
        if name in self.containers:
            return 125, "", f"Error: the container name {name} is already in use\n"
        source, _, inside = options["--volume"][0].partition(":")
        lines = Path(options["--env-file"][0]).read_text().splitlines()
        env = dict(line.split("=", 1) for line in lines)
        env = {key: value.replace(f"{inside}/", f"{source}/") for key, value in env.items()}
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], **env},
            start_new_session=True,
        )
        self.containers[name] = Container(name, options["--label"], process)
        output, errors = process.communicate(given)
        self.containers.pop(name, None)
        status = process.returncode
        return (128 - status if status < 0 else status), output, errors

    def _end(self, name: str, grace: float) -> tuple[int, str, str]:
        container = self.containers.get(name)
        if container is None:
            return 1, "", f"Error: no container with name {name}\n"
        if grace > 0:
            container.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                container.process.wait(grace)
        with suppress(ProcessLookupError):
            os.killpg(container.process.pid, signal.SIGKILL)
        return 0, f"{name}\n", ""


@contextmanager
def container_engine(folder: Path) -> Iterator[Daemon]:
    """Serve the daemon; ``folder/bin/podman`` is its client, and containers start in ``folder``."""
    daemon = Daemon(folder)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            line: Any = self.rfile.readline()
            if not line:
                return
            words, given = json.loads(line)
            answer = json.dumps(daemon.answer(words, given)).encode() + b"\n"
            try:
                self.wfile.write(answer)
            except OSError:  # the client was killed
                return

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True
        request_queue_size = 64

    binaries = folder / "bin"
    binaries.mkdir()
    socket = str(folder / "engine.sock")
    client = binaries / "podman"
    client.write_text(CLIENT.format(python=sys.executable, socket=socket))
    client.chmod(0o755)
    with Server(socket, Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        serving.start()
        try:
            yield daemon
        finally:
            daemon.close()
            server.shutdown()
            serving.join()

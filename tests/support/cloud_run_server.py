"""A local server with the REST surface of Cloud Run Jobs v2 that the executor uses, and a metadata server.

Faults are put on lists: each start takes the next of ``starts``, each other call the next of ``others``.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JOB = "projects/shop/locations/here/jobs/resize"


@dataclass
class Execution:
    name: str
    env: dict[str, str]
    created_at: str
    polls: int = 0
    ends_after: int = 1
    """So many answers say that it runs."""
    exit_code: int = 0
    cancelled: bool = False
    hidden_for: int = 0
    """So many lists leave it out: it was started late."""

    @property
    def is_over(self) -> bool:
        return self.cancelled or self.polls > self.ends_after

    def fields(self) -> dict[str, Any]:
        failed = self.cancelled or self.exit_code != 0
        env = [{"name": name, "value": value} for name, value in self.env.items()]
        found: dict[str, Any] = {
            "name": self.name,
            "createTime": self.created_at,
            "template": {"containers": [{"env": env}]},
            "taskCount": 1,
            "runningCount": 0 if self.is_over else 1,
            "logUri": f"https://logs.example/{self.name}",
            "conditions": [],
        }
        if self.is_over:
            state = "CONDITION_FAILED" if failed else "CONDITION_SUCCEEDED"
            message = "cancelled" if self.cancelled else "Task failed" if failed else ""
            found["completionTime"] = self.created_at
            found["conditions"] = [{"type": "Completed", "state": state, "message": message}]
            found[
                "cancelledCount"
                if self.cancelled
                else "failedCount"
                if failed
                else "succeededCount"
            ] = 1
        return found


@dataclass
class CloudRunServer:
    """The state of the service."""

    url: str = ""
    executions: list[Execution] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    """``lost``: started, no answer; ``late``: so too, and left out of lists for a while; ``never``: not
    started, no answer; a number: that status."""
    others: list[str] = field(default_factory=list)
    """A number: that status; ``lost``: no answer."""
    refused: set[str] = field(default_factory=set)
    """What is answered with 403: ``list``, ``get``, ``cancel``, ``tasks``."""
    ends_after: int = 1
    exit_code: int = 0
    tokens: int = 0
    calls: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, method: str, path: str, token: str, body: Any) -> tuple[int, Any] | None:
        """Return status and body; None for no answer at all."""
        with self.lock:
            self.calls.append(f"{method} {path}")
            if path.startswith("/computeMetadata/"):
                self.tokens += 1
                return 200, {"access_token": f"token-{self.tokens}", "expires_in": 3600}
            if token != f"Bearer token-{self.tokens}":
                return 401, _error("the token has expired")
            path = path.removeprefix("/v2/").partition("?")[0]
            if path.endswith(":run"):
                return self._start(path.removesuffix(":run"), body)
            fault = self.others.pop(0) if self.others else ""
            if fault == "lost":
                return None
            if fault:
                if fault == "401":
                    self.tokens += 1
                return int(fault), _error("injected")
            return self._other(path)

    def _start(self, job: str, body: Any) -> tuple[int, Any] | None:
        fault = self.starts.pop(0) if self.starts else ""
        if fault.isdecimal():
            return int(fault), _error("injected")
        if fault == "never":
            return None
        if job != JOB:
            return 404, _error(f"there is no {job}")
        env = body["overrides"]["containerOverrides"][0]["env"]
        one = Execution(
            f"{job}/executions/run-{len(self.executions)}",
            {entry["name"]: entry["value"] for entry in env},
            datetime.now(UTC).isoformat(),
            ends_after=self.ends_after,
            exit_code=self.exit_code,
            hidden_for=2 if fault == "late" else 0,
        )
        self.executions.append(one)
        return None if fault in ("lost", "late") else (200, {"metadata": one.fields()})

    def _other(self, path: str) -> tuple[int, Any]:
        if _kind(path) in self.refused:
            return 403, _error("no right")
        if path == f"{JOB}/executions":
            found = [one for one in reversed(self.executions) if one.hidden_for == 0]
            for one in self.executions:
                one.hidden_for = max(0, one.hidden_for - 1)
            return 200, {"executions": [one.fields() for one in found]}
        name, _, verb = path.partition(":")
        name, _, _ = name.partition("/tasks")
        known = [one for one in self.executions if one.name == name]
        if not known:
            return 404, _error(f"there is no {path}")
        (one,) = known
        if verb == "cancel":
            if one.is_over:
                return 400, _error("the execution is over")
            one.cancelled = True
        elif path.endswith("/tasks"):
            return 200, {"tasks": [{"lastAttemptResult": {"exitCode": one.exit_code}}]}
        else:
            one.polls += 1
        return 200, one.fields()


def _kind(path: str) -> str:
    if path.endswith("/executions"):
        return "list"
    if path.endswith("/tasks"):
        return "tasks"
    return "cancel" if path.endswith(":cancel") else "get"


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}


@contextmanager
def cloud_run_server() -> Iterator[CloudRunServer]:
    state = CloudRunServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._handle("GET", None)

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._handle("POST", json.loads(raw) if raw else None)

        def _handle(self, method: str, body: Any) -> None:
            token = self.headers.get("Authorization", "")
            found = state.answer(method, self.path, token, body)
            if found is None:
                self.close_connection = True
                return
            data = json.dumps(found[1]).encode()
            self.send_response(found[0])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        serving = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        serving.start()
        try:
            yield state
        finally:
            server.shutdown()
            serving.join()

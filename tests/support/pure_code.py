"""Guards tests of pure code: no process, no socket, no sleep; a test that needs one is an integration test.

A conftest whose tests run pure code imports the fixture :func:`only_pure_code`.
"""

import sys
from collections.abc import Iterator

import pytest

FORBIDDEN = {
    "subprocess.Popen": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "socket.bind": "opens a socket",
    "socket.connect": "opens a socket",
    "time.sleep": "sleeps",
}
"""Audit events of CPython and what they mean. Source: Python library reference, "Audit events table"."""

_seen: list[str] | None = None
"""What the running test has done of it; None between tests."""


def _watch(event: str, _: tuple[object, ...]) -> None:
    if _seen is not None and event in FORBIDDEN:
        _seen.append(event)
        pytest.fail(
            f"a test of pure code {FORBIDDEN[event]} ({event}): it belongs in tests/integration"
        )


sys.addaudithook(_watch)


@pytest.fixture(autouse=True)
def only_pure_code() -> Iterator[None]:
    """Fail a test that starts a process, opens a socket or sleeps, also in a thread."""
    global _seen  # noqa: PLW0603 - an audit hook cannot be removed, only switched off
    seen: list[str] = []
    _seen = seen
    yield
    _seen = None
    assert seen == [], f"a test of pure code {FORBIDDEN[seen[0]]}: it belongs in tests/integration"

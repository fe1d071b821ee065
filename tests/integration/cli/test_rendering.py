"""Output on a real terminal."""

import os
import pty
import subprocess
import sys


def _on_a_terminal(environment: dict[str, str]) -> str:
    """What `mitosis config show --all` writes when standard output is a terminal."""
    controller, terminal = pty.openpty()
    with os.fdopen(controller, "rb", buffering=0) as reading:
        words = [sys.executable, "-c", "from mitosis.cli import main; main()"]
        process = subprocess.Popen(
            [*words, "config", "show", "--all"],
            stdout=terminal,
            env={**os.environ, "TERM": "xterm-256color", "MITOSIS_CONFIG": "", **environment},
        )
        os.close(terminal)
        shown = b""
        try:
            while block := reading.read(65536):
                shown += block
        except OSError:  # EIO: the other end is closed
            pass
        assert process.wait() == 0
    return shown.decode()


def test_no_color_is_honoured_on_a_terminal() -> None:
    assert "\x1b[1m" in _on_a_terminal({})
    plain = _on_a_terminal({"NO_COLOR": "1"})
    assert "\x1b[3" not in plain
    assert "temporal.namespace" in plain

"""Whether standard input is given to a run, asked in a real process."""

import subprocess
import sys


def test_a_silent_pipe_is_input_for_a_command_that_wants_some() -> None:
    program = (
        "from mitosis.cli.run.sources import stdin_is_given as given\n"
        "print(given(needed=True), given(needed=False))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as asking:
        assert asking.stdout is not None
        assert asking.stdout.read() == "True False\n"  # while its input is open and empty

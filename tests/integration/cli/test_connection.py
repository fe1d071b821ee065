"""What a command says when the API of its data folder is gone."""

from pathlib import Path

from mitosis.cli.connection import StackConnection
from tests.support.command import mitosis
from tests.support.stack_folder import own_home, stack

__all__ = ["own_home", "stack"]


def test_a_stack_that_was_killed_is_reported_as_such(
    stack: StackConnection, data_dir: Path
) -> None:
    ran = mitosis("whoami", "--data-dir", str(data_dir))
    assert ran.status == 69
    assert ran.out == ""
    assert f"the API at unix:{data_dir}/api.sock cannot be reached" in ran.err
    assert "connection.json; start everything on this machine with: mitosis up" in ran.err

"""`mitosis user`, `mitosis token` and `mitosis manager token`, against the real API and PostgreSQL."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mitosis.cli.exit import ExitStatus
from mitosis.client.sync import SyncClient
from mitosis.contracts.http import RegisterManager
from tests.support.cli_stack import CliStack, cli_stack
from tests.support.command import Ran, mitosis
from tests.support.servers import LoopThread


@pytest.fixture
def stack(
    server_loop: LoopThread, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CliStack]:
    with cli_stack(server_loop, database, tmp_path / "data") as running:
        for name in [name for name in os.environ if name.startswith("MITOSIS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("MITOSIS_DATA_DIR", str(tmp_path / "data"))
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            monkeypatch.setenv(name, str(tmp_path / "state"))
        yield running


def done(*words: str) -> Ran:
    ran = mitosis(*words)
    assert ran.status == 0, ran.err
    return ran


def test_a_second_person_logs_in_with_her_own_group_and_role(
    stack: CliStack, tmp_path: Path
) -> None:
    words, other = tmp_path / "words", tmp_path / "other"
    words.write_text("planted words 1\n")
    other.write_text("planted words 2\n")
    done("group", "create", "mine")
    made = done("user", "add", "ann", "--role", "admin:read", "--password-file", str(words))
    assert "admin (read), ann (admin)" in made.out
    done("user", "add", "ben", "--password-file", str(words))
    assert done("user", "list", "--quiet").out.split() == ["admin", "ann", "ben"]
    for name, seen in (("ben", []), ("ann", ["mine"])):
        done("login", name, "--password-file", str(words))
        assert done("whoami", "--quiet").out.strip() == name
        assert [one["name"] for one in done("group", "list", "--json").json] == seen
        assert mitosis("user", "list").status == ExitStatus.NOT_ALLOWED
    listed = done("token", "list").out
    assert "ann" in listed
    assert "ben" not in listed
    changed = ("--current-password-file", str(words), "--password-file", str(other))
    done("user", "passwd", *changed)
    assert mitosis("whoami").status == ExitStatus.NOT_ALLOWED
    refused = mitosis("login", "ann", "--password-file", str(words))
    assert refused.status == ExitStatus.NOT_ALLOWED
    done("login", "ann", "--password-file", str(other))
    done("logout")  # the admin of the data folder again
    done("user", "lock", "ann")
    assert mitosis("login", "ann", "--password-file", str(other)).status == ExitStatus.NOT_ALLOWED
    assert "active" in done("user", "unlock", "ann").out
    assert "planted" not in made.out + listed + refused.err


def test_tokens_of_a_host_end_and_a_new_one_is_saved(stack: CliStack, tmp_path: Path) -> None:
    with SyncClient(stack.url, stack.token) as client:
        first = client.register_manager(RegisterManager(name="host-1"))
    assert "host-1" in done("token", "list").out
    assert "host host-1" in done("token", "revoke", "--host", "host-1").out
    assert "host-1" not in done("token", "list").out
    saved = tmp_path / "new-token"
    shown = done("manager", "token", "host-1", "--lifetime", "2d", "--save-token", str(saved)).out
    assert saved.stat().st_mode & 0o777 == 0o600
    assert saved.read_text() not in shown
    assert first.token != saved.read_text()
    assert "host-1" in done("token", "list").out
    (printed,) = done("manager", "token", "host-1", "--quiet").out.splitlines()
    assert len(printed.split(".")) == len(first.token.split(".")) > 1
    named = done("manager", "token", "host-1", "--quiet", "--save-token", str(tmp_path / "third"))
    assert named.out.splitlines() == [str(tmp_path / "third")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("token", "revoke"), "exactly one of --user, --host and --worker"),
        (("token", "revoke", "--user", "a", "--host", "b"), "exactly one of --user, --host"),
        (("user", "add", "ann", "--role", "group"), "write USERGROUP:ROLE"),
        (("user", "add", "ann", "--role", "group:boss"), "write USERGROUP:ROLE"),
        (("user", "lock", "nothing"), "there is no user nothing"),
        (("user", "lock", "admin"), "you cannot lock yourself"),
        (("token", "revoke", "--host", "nothing"), "no host is called 'nothing'"),
    ],
)
def test_what_cannot_be_done_is_said(stack: CliStack, words: tuple[str, ...], said: str) -> None:
    ran = mitosis(*words)
    assert ran.status != 0
    assert said in ran.err

"""Which API a command talks to, and which token it shows to whom."""

import stat
from pathlib import Path

import pytest

from mitosis.cli.connection import (
    StackConnection,
    find_api,
    read_connection,
    remove_connection,
    store_token,
    stored_token,
    tokens_path,
    write_connection,
)
from mitosis.contracts.errors import ApiUnavailable, ConfigurationError, InvalidRequest, NotFound
from mitosis.settings import Settings, load_settings
from tests.support.command import mitosis
from tests.support.stack_folder import HERE, own_home, stack

__all__ = ["own_home", "stack"]

ELSEWHERE = "http://example.invalid"


def settings(data_dir: Path, **overrides: str) -> Settings:
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_settings({"data_dir": data_dir, **dotted}).settings


def test_the_stack_of_the_data_folder_is_reached_over_its_socket_without_a_token(
    stack: StackConnection, data_dir: Path
) -> None:
    for found in (settings(data_dir), settings(data_dir, api__url=HERE)):
        target = find_api(found)
        assert (target.http_url, target.token) == (HERE, None)
        assert target.address == f"unix:{data_dir}/api.sock"
    store_token(HERE, "login-token")
    target = find_api(settings(data_dir))
    assert (target.address, target.token) == (f"unix:{data_dir}/api.sock", "login-token")
    assert read_connection(data_dir) == stack
    assert stat.S_IMODE((data_dir / "connection.json").stat().st_mode) == 0o600


def test_another_api_is_reached_at_its_address(stack: StackConnection, data_dir: Path) -> None:
    target = find_api(settings(data_dir, api__url=ELSEWHERE))
    assert (target.address, target.token) == (ELSEWHERE, None)


def test_a_socket_may_be_named(data_dir: Path) -> None:
    assert (
        find_api(settings(data_dir, api__url="unix:/run/api.sock")).address == "unix:/run/api.sock"
    )
    with pytest.raises(InvalidRequest, match="is not an address of an API"):
        find_api(settings(data_dir, api__url="unix:api.sock"))


def test_a_stack_that_stopped_is_not_found(stack: StackConnection, data_dir: Path) -> None:
    remove_connection(data_dir)
    remove_connection(data_dir)
    with pytest.raises(ApiUnavailable, match="no stack runs") as caught:
        find_api(settings(data_dir))
    assert "mitosis up" in caught.value.facts["hint"]


def test_file_wins_over_token_wins_over_login_wins_over_no_token(
    stack: StackConnection, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def token() -> str | None:
        return find_api(settings(data_dir)).token

    assert token() is None
    store_token(HERE, "login-token")
    assert token() == "login-token"
    monkeypatch.setenv("MITOSIS_TOKEN", "given-token")
    assert token() == "given-token"
    file = tmp_path / "token"
    file.write_text("file-token\n")
    monkeypatch.setenv("MITOSIS_TOKEN_FILE", str(file))
    assert token() == "file-token"


def test_a_login_is_kept_for_its_address_only_and_for_nobody_else() -> None:
    store_token(HERE + "/", "a")
    store_token(ELSEWHERE, "b")
    assert (stored_token(HERE), stored_token(ELSEWHERE + "/")) == ("a", "b")
    assert stat.S_IMODE(tokens_path().stat().st_mode) == 0o600
    assert stat.S_IMODE(tokens_path().parent.stat().st_mode) == 0o700
    store_token(HERE, None)
    assert (stored_token(HERE), stored_token(ELSEWHERE)) == (None, "b")


def test_a_token_file_that_cannot_be_read_is_named(data_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no-such-file: No such file"):
        find_api(settings(data_dir, api__url=HERE, api__token_file=str(tmp_path / "no-such-file")))
    binary = tmp_path / "binary"
    binary.write_bytes(b"secret\xff")
    with pytest.raises(NotFound, match="it is not text") as caught:
        find_api(settings(data_dir, api__url=HERE, api__token_file=str(binary)))
    assert "secret" not in str(caught.value)


def test_a_damaged_connection_file_says_what_to_do(data_dir: Path) -> None:
    data_dir.mkdir()
    (data_dir / "connection.json").write_text("{}")
    with pytest.raises(ConfigurationError, match=r"connection\.json is not what"):
        read_connection(data_dir)


def test_tokens_are_stars_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MITOSIS_TOKEN", "very-secret")
    for form in ((), ("--json",), ("--quiet",)):
        ran = mitosis("config", "show", "--all", *form)
        assert ran.status == 0
        assert "very-secret" not in ran.out + ran.err
    shown = mitosis("config", "show", "--json").json
    assert shown["api.token"] == {"value": "**********", "origin": "MITOSIS_TOKEN"}


def test_the_authority_of_a_data_folder_is_trusted_for_the_api_of_that_folder_only(
    stack: StackConnection, data_dir: Path, tmp_path: Path
) -> None:
    def ca_file(url: str | None = None, **more: str) -> Path | None:
        return find_api(settings(data_dir, **({"api__url": url} if url else {}), **more)).ca_file

    own = data_dir / "api-ca.pem"
    write_connection(data_dir, stack.model_copy(update={"ca_file": own}))
    assert ca_file() == ca_file(HERE) == own
    assert ca_file("https://127.0.0.1:2") is None
    own.touch()
    assert ca_file("https://127.0.0.1:2") == ca_file("https://localhost") == own
    assert ca_file("https://example.invalid") is None
    assert ca_file("http://127.0.0.1:2") is None
    given = tmp_path / "given.pem"
    assert ca_file(api__ca_file=str(given)) == given

"""The administrator of a stack that runs on a data folder."""

from pathlib import Path

from mitosis.client.finding import read_connection, read_token
from mitosis.client.sync import SyncClient
from mitosis.unix_socket import SCHEME


def admin_token_file(data_dir: Path) -> Path:
    """The file that the API writes, for programs that use TCP."""
    return data_dir / "secrets" / "admin-token"


def admin_token(data_dir: Path) -> str:
    return read_token(admin_token_file(data_dir))


def admin_address(data_dir: Path) -> tuple[str, str]:
    """URL and token, for programs that use TCP."""
    found = read_connection(data_dir)
    assert found is not None
    return found.api_url, admin_token(data_dir)


def admin_client(data_dir: Path) -> SyncClient:
    """A client as programs of the same user find it; over TCP where the API runs alone."""
    found = read_connection(data_dir)
    assert found is not None
    if found.api_socket is None:
        return SyncClient(found.api_url, admin_token(data_dir))
    return SyncClient(f"{SCHEME}{found.api_socket}")

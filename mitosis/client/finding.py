"""Finds the API and the token for a program: from settings, else from the stack of `mitosis up` on this host.

`mitosis up` writes ``connection.json`` into its data folder and removes it when it stops. Programs reach the
API of that data folder over its unix socket, which needs no token: after the stack has ended, no program
sends a token to another program at its port. With another address a token must be given, or `mitosis login`
must have stored one for exactly that address. These files are written by
``mitosis/cli/connection.py``.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError

from mitosis.client.trust import CA_FILE, is_loopback
from mitosis.contracts.bounded_files import MOST_DOCUMENT_BYTES, MOST_SECRET_BYTES, read_bounded
from mitosis.contracts.errors import ApiUnavailable, ConfigurationError, InvalidRequest, NotFound
from mitosis.settings import Settings, default_data_dir, load_settings
from mitosis.unix_socket import SCHEME, socket_of

FILE_NAME = "connection.json"
START = "start everything on this machine with: mitosis up"


class StackConnection(BaseModel):
    """Content of ``connection.json``."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    api_url: str
    api_socket: Path | None = None
    """Where programs of this user reach the API without a token."""
    temporal_address: str
    """``host:port``"""
    temporal_namespace: str
    ca_file: Path | None = None
    """Certificates to trust for ``api_url``; None: those of the system."""
    ui_url: str | None = None
    pid: int


@dataclass(frozen=True, slots=True)
class Target:
    """The API that a command talks to."""

    http_url: str
    """As it is shown; a login is stored for it. It may be a ``unix:`` address that was given."""
    token: str | None
    origin: str
    """Where the address came from, for error messages."""
    ca_file: Path | None = None
    """Certificates to trust over https; None: those of the system."""
    socket: Path | None = None
    """The unix socket of the same API, which is used instead."""

    @property
    def address(self) -> str:
        """The address to connect to."""
        return self.http_url if self.socket is None else f"{SCHEME}{self.socket}"


def read_connection(data_dir: Path) -> StackConnection | None:
    """Return the stack of a data folder, or None if none runs on it.

    Raises:
        ConfigurationError: the file exists but cannot be read or parsed.
    """
    path = data_dir / FILE_NAME
    try:
        return StackConnection.model_validate_json(read_bounded(path, MOST_DOCUMENT_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except ValidationError as error:
        raise ConfigurationError(
            f"{path} is not what `mitosis up` writes", hint="stop the stack and start it again"
        ) from error


def data_dir_of(settings: Settings) -> Path:
    """Return the data folder of these settings."""
    return settings.data_dir or default_data_dir()


def find_target() -> Target:
    """Load the settings and return their API, as :func:`find_api` does.

    Raises:
        ApiUnavailable: no address is set and no stack runs; names the command to run.
        ConfigurationError: a setting is not valid.
    """
    return find_api(load_settings().settings)


def find_api(settings: Settings) -> Target:
    """Return the API of the settings, else the stack of the data folder.

    Raises:
        ApiUnavailable: no address is set and no stack runs; names the command to run.
        InvalidRequest: the address is invalid.
    """
    data_dir = data_dir_of(settings)
    stack = read_connection(data_dir)
    url = settings.api.url or (stack.api_url if stack else None)
    if url is None:
        raise ApiUnavailable(
            f"no stack runs on the data folder {data_dir}, and no API address is given",
            hint=f"{START}\n  or name a running API with --api URL or MITOSIS_API_URL",
        )
    check_url(url)
    token = _given_token(settings) or stored_token(url)
    own_socket = stack.api_socket if stack is not None and url == stack.api_url else None
    origin = "the settings" if settings.api.url else str(data_dir / FILE_NAME)
    ca_file = settings.api.ca_file or _own_ca_file(url, stack, data_dir)
    return Target(url, token, origin, ca_file, own_socket)


def _own_ca_file(url: str, stack: StackConnection | None, data_dir: Path) -> Path | None:
    """Return the certificate of the data folder's own authority, for addresses of its API only."""
    if stack is not None and url == stack.api_url:
        return stack.ca_file
    own = data_dir / CA_FILE
    return own if url.startswith("https:") and is_loopback(url) and own.is_file() else None


def check_url(url: str) -> None:
    """Check that the text is the address of an API.

    Raises:
        InvalidRequest: says what would be right.
    """
    try:
        if socket_of(url) is not None:
            return
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except (ValueError, ConfigurationError):
        usable = False
    if not usable or any(char.isspace() for char in url):
        raise InvalidRequest(
            f"{url!r} is not an address of an API; write it as in http://127.0.0.1:8000, or unix:/path",
            option="--api",
            field="api.url",
        )


def _given_token(settings: Settings) -> str | None:
    if settings.api.token_file is not None:
        return read_token(settings.api.token_file)
    return settings.api.token.get_secret_value() if settings.api.token else None


def read_token(path: Path) -> str:
    """Read the token in a file.

    Raises:
        NotFound: the file is missing or cannot be read; the message shows none of its content.
    """
    try:
        return read_bounded(path, MOST_SECRET_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise NotFound(f"cannot read the token file {path}: {reason}") from None


# --- tokens that `mitosis login` stored ---------------------------------------------------------------


def tokens_path() -> Path:
    """Return ``tokens.json`` below ``$XDG_STATE_HOME/mitosis`` (``~/.local/state/mitosis``)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(base) / "mitosis" / "tokens.json"


def stored_token(api_url: str) -> str | None:
    """Return the token that a login stored for this address, if any."""
    return stored_tokens().get(api_url.rstrip("/"))


def stored_tokens() -> dict[str, str]:
    """Return every token that a login stored, by address.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        tokens = json.loads(read_bounded(tokens_path(), MOST_DOCUMENT_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"cannot read the stored logins in {tokens_path()}",
            hint="remove that file and log in again",
        ) from error
    return {str(url): str(token) for url, token in tokens.items()}

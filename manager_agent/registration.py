"""Registers this host once; keeps its manager id and token in a private file."""

import base64
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import msgspec

from mitosis.contracts.errors import ConfigurationError
from mitosis.contracts.http import RegisteredManager, RegisterManager
from mitosis.execution.identity import write_durably
from mitosis.execution.run_folder import make_private

FILE = "manager.json"

Register = Callable[[RegisterManager], Awaitable[RegisteredManager]]
"""``POST /managers`` with a user's token."""

log = logging.getLogger(__name__)


class Credentials(msgspec.Struct, frozen=True):
    """The manager id and token of this host. The token is a secret and is never logged."""

    manager_id: UUID
    token: str

    def __repr__(self) -> str:
        return f"Credentials({self.manager_id})"


def read_credentials(state_dir: Path) -> Credentials | None:
    """Return the credentials of an earlier registration, if any.

    Raises:
        ConfigurationError: the file holds something else.
    """
    path = state_dir / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Credentials)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not a manager's credentials: {error}") from None


class _Claims(msgspec.Struct):
    sub: str


def manager_of(token: str | None) -> UUID | None:
    """Return the manager that a token is of; None for the token of a user. The API alone checks tokens."""
    try:
        _, claims, _ = (token or "").split(".")
        padded = claims + "=" * (-len(claims) % 4)
        subject = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Claims).sub
        kind, _, identifier = subject.partition(":")
        return UUID(identifier) if kind == "manager" else None
    except (ValueError, msgspec.MsgspecError):
        return None


async def ensure_registered(
    register: Register, state_dir: Path, spec: RegisterManager, token: str | None = None
) -> Credentials:
    """Return the credentials in ``state_dir``; without any, register and store them (mode 0600).

    ``token``: that of the caller. If it is of a manager, as `mitosis manager register` prints it, the host is
    registered already: the token is stored.
    """
    make_private(state_dir)
    if found := read_credentials(state_dir):
        return found
    if token is not None and (registered_as := manager_of(token)) is not None:
        credentials = Credentials(registered_as, token)
    else:
        registered = await register(spec)
        credentials = Credentials(registered.manager_id, registered.token)
    write_durably(state_dir / FILE, msgspec.json.encode(credentials))
    log.info("manager.registered", extra={"manager_id": str(credentials.manager_id)})
    return credentials

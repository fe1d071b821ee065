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


class TokenFacts(msgspec.Struct, frozen=True):
    """What a token says of itself. The API alone checks tokens."""

    sub: str
    ver: int
    iat: int
    exp: int

    @property
    def manager_id(self) -> UUID | None:
        """The manager that it is of; None for the token of a user."""
        kind, _, identifier = self.sub.partition(":")
        try:
            return UUID(identifier) if kind == "manager" else None
        except ValueError:
            return None


def facts_of(token: str | None) -> TokenFacts | None:
    """Return what a token says; None if it cannot be read."""
    try:
        _, claims, _ = (token or "").split(".")
        padded = claims + "=" * (-len(claims) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=TokenFacts)
    except (ValueError, msgspec.MsgspecError):
        return None


def manager_of(token: str | None) -> UUID | None:
    """Return the manager that a token is of; None for the token of a user."""
    facts = facts_of(token)
    return None if facts is None else facts.manager_id


def keep_credentials(state_dir: Path, credentials: Credentials) -> None:
    """Store the credentials (mode 0600), so that a power cut leaves the old or the new ones."""
    write_durably(state_dir / FILE, msgspec.json.encode(credentials))


async def ensure_registered(
    register: Register, state_dir: Path, spec: RegisterManager, token: str | None = None
) -> Credentials:
    """Return the credentials in ``state_dir``; without any, register and store them (mode 0600).

    ``token``: that of the caller. If it is of a manager, as `mitosis manager register` and `mitosis manager
    token` print it, the host is registered already: the token is stored. It replaces a stored one of the same
    manager that was issued under an earlier version or expires sooner.
    """
    make_private(state_dir)
    found, registered_as = read_credentials(state_dir), manager_of(token)
    if found is not None and not (registered_as == found.manager_id and _is_newer(token, found)):
        return found
    if token is not None and registered_as is not None:
        credentials = Credentials(registered_as, token)
    else:
        registered = await register(spec)
        credentials = Credentials(registered.manager_id, registered.token)
    keep_credentials(state_dir, credentials)
    log.info("manager.registered", extra={"manager_id": str(credentials.manager_id)})
    return credentials


def _is_newer(token: str | None, found: Credentials) -> bool:
    """Return whether a given token is to replace the stored one of the same manager."""
    given, stored = facts_of(token), facts_of(found.token)
    if given is None:
        return False
    return stored is None or (given.ver, given.exp) > (stored.ver, stored.exp)

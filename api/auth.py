"""Tokens: EdDSA JWTs with the subject, its token version and the expiry.

Facts that can change (whether the user is locked, their user groups) are read from PostgreSQL on every call.
A token is revoked by raising the token version of its subject. Tokens are never logged and never
part of an error.
"""

import hashlib
import math
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from api.shares import Holder
from mitosis.contracts.errors import ConfigurationError, Unauthenticated
from mitosis.contracts.http import Token

ALGORITHM = "EdDSA"
ISSUER = "mitosis"
LEEWAY = timedelta(seconds=30)
"""How far the clocks of two API hosts may differ."""

REMEMBERED = 10_000
"""Number of tokens whose signature check is cached."""

SubjectKind = Literal["user", "manager", "worker"]


@dataclass(frozen=True, slots=True)
class Subject:
    """The user, manager or worker service that a token names."""

    kind: SubjectKind
    id: UUID
    token_version: int
    expires_at: float = field(default=math.inf, compare=False)
    """When the token that names it expires, in seconds since the epoch."""

    @property
    def holder(self) -> Holder:
        """Whose share of the API its calls count to."""
        return self.kind, self.id


class TokenSigner:
    """Makes and reads the tokens of one deployment; safe to share within an event loop.

    Valid signatures are cached by the digest of their token: checking one costs more than the rest of a
    claim, and a host sends the same token several times a second.
    """

    def __init__(self, private_key_pem: bytes) -> None:
        """Take an Ed25519 private key, PKCS #8 PEM, unencrypted.

        Raises:
            ConfigurationError: the text is not such a key.
        """
        try:
            key = load_pem_private_key(private_key_pem, password=None)
        except (ValueError, TypeError) as error:
            raise ConfigurationError("the signing key is not an unencrypted PEM key") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ConfigurationError("the signing key is not an Ed25519 key")
        self._private, self._public = key, key.public_key()
        self._good: dict[bytes, Subject] = {}

    def issue(self, subject: Subject, lifetime: timedelta) -> Token:
        """Return a new token, valid for ``lifetime``."""
        now = datetime.now(UTC).replace(microsecond=0)
        claims = {
            "iss": ISSUER,
            "sub": f"{subject.kind}:{subject.id}",
            "ver": subject.token_version,
            "iat": now,
            "exp": now + lifetime,
        }
        token = jwt.encode(claims, self._private, algorithm=ALGORITHM)
        return Token(token=token, expires_at=now + lifetime)

    def read(self, token: str) -> Subject:
        """Return the user, manager or worker service that a token names.

        Raises:
            Unauthenticated: the token has expired or is invalid. The message gives no more detail.
        """
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        known = self._good.get(digest)
        if known is not None and time.time() < known.expires_at:
            return known
        subject = self._verified(token)
        if len(self._good) >= REMEMBERED:
            self._good.clear()
        self._good[digest] = subject
        return subject

    def _verified(self, token: str) -> Subject:
        try:
            claims = jwt.decode(
                token,
                self._public,
                algorithms=[ALGORITHM],
                issuer=ISSUER,
                leeway=LEEWAY,
                options={"require": ["iss", "sub", "ver", "exp"]},
            )
            kind, _, subject_id = str(claims["sub"]).partition(":")
            expires_at = float(claims["exp"])
            subject = Subject(_kind(kind), UUID(subject_id), int(claims["ver"]), expires_at)
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("the token has expired", reason="token_expired") from None
        except (jwt.InvalidTokenError, ValueError, TypeError):
            raise invalid_token() from None
        return subject


def invalid_token() -> Unauthenticated:
    """Return the error for an invalid token; it is the same for every cause."""
    return Unauthenticated("the token is not valid here", reason="token_invalid")


def _kind(text: str) -> SubjectKind:
    if text == "user":
        return "user"
    if text == "manager":
        return "manager"
    if text == "worker":
        return "worker"
    raise ValueError(text)

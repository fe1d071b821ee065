"""Tokens: only ours, only while they are good, and silent about why not."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from api.auth import Subject, TokenSigner
from mitosis.contracts.errors import ConfigurationError, Unauthenticated
from mitosis.embedded.data_folder import ed25519_private_key

HOUR = timedelta(hours=1)
KEY = ed25519_private_key()


@pytest.fixture
def signer() -> TokenSigner:
    return TokenSigner(KEY)


def forged(algorithm: str = "EdDSA", key: object = None, **changes: object) -> str:
    """A token with one thing wrong, signed by our key unless another is given."""
    claims = {
        "iss": "mitosis",
        "sub": f"user:{uuid4()}",
        "ver": 1,
        "exp": datetime.now(UTC) + HOUR,
        **changes,
    }
    signing = load_pem_private_key(KEY, None) if key is None else key
    kept = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(kept, signing, algorithm=algorithm)  # type: ignore[arg-type]


@pytest.mark.spec("S002-10", "S002-134")
@pytest.mark.parametrize("kind", ["user", "manager"])
def test_a_token_names_its_subject(signer: TokenSigner, kind: str) -> None:
    subject = Subject("user" if kind == "user" else "manager", uuid4(), 3)
    token = signer.issue(subject, HOUR)
    assert signer.read(token.token) == subject
    assert jwt.get_unverified_header(token.token)["alg"] == "EdDSA"
    assert HOUR - timedelta(seconds=5) < token.expires_at - datetime.now(UTC) <= HOUR


def test_an_expired_token_says_so(signer: TokenSigner) -> None:
    token = signer.issue(Subject("user", uuid4(), 1), -HOUR)
    with pytest.raises(Unauthenticated) as refused:
        signer.read(token.token)
    assert refused.value.facts == {"reason": "token_expired"}


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.c",
        TokenSigner(ed25519_private_key()).issue(Subject("user", uuid4(), 1), HOUR).token,
        forged(sub="robot:" + str(uuid4())),
        forged(sub="user:1"),
        forged(ver=None),
        forged(ver="x"),
        forged(exp=None),
        forged(iss="elsewhere"),
        forged(algorithm="HS256", key="k" * 32),
        forged(algorithm="none", key=""),
    ],
    ids=[
        "empty",
        "word",
        "dots",
        "another key",
        "kind",
        "id",
        "no version",
        "version",
        "no expiry",
        "issuer",
        "hmac",
        "unsigned",
    ],
)
def test_every_other_token_is_refused_alike(signer: TokenSigner, token: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        signer.read(token)
    assert refused.value.facts == {"reason": "token_invalid"}
    assert refused.value.message == "the token is not valid here"
    assert not token or token not in str(refused.value)


def test_only_an_ed25519_key_signs() -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    pem = curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for key in (pem, b"", b"-----BEGIN PRIVATE KEY-----"):
        with pytest.raises(ConfigurationError):
            TokenSigner(key)


def test_a_signature_is_checked_once_while_the_token_is_good(
    signer: TokenSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    verify = signer._verified

    def counting(token: str) -> Subject:
        checked.append(token)
        return verify(token)

    monkeypatch.setattr(signer, "_verified", counting)
    token = signer.issue(Subject("user", uuid4(), 1), HOUR)
    assert signer.read(token.token) == signer.read(token.token)
    assert len(checked) == 1
    monkeypatch.setattr("api.auth.time.time", lambda: token.expires_at.timestamp() + 1)
    signer.read(token.token)
    assert len(checked) == 2
    for _ in range(2):  # a bad one is never remembered
        with pytest.raises(Unauthenticated):
            signer.read(token.token[:-8] + "AAAAAAAA")
    assert len(checked) == 4

"""Certificates for tests: self-signed ones between any two moments, and those of an authority of our own."""

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from mitosis.embedded.authority import Authority
from mitosis.embedded.data_folder import DataFolder

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


def authority(folder: Path, *names: str, host: str = "127.0.0.1") -> Authority:
    return Authority(DataFolder(folder), host, names)


def elliptic() -> Any:
    return ec.generate_private_key(ec.SECP256R1())


def edwards() -> Any:
    return ed25519.Ed25519PrivateKey.generate()


def self_signed(
    key: Any, *names: str, ends: datetime = NOW + 60 * DAY, begins: datetime = NOW - DAY
) -> bytes:
    """For these names, else for 127.0.0.1."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    for_address = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(begins, ends - DAY))
        .not_valid_after(ends)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(one) for one in names] or for_address),
            critical=False,
        )
        .sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM)


def pem(key: Any, password: bytes = b"") -> bytes:
    how = BestAvailableEncryption(password) if password else NoEncryption()
    return bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))


def private(path: Path, content: bytes) -> Path:
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


def trusting_all() -> ssl.SSLContext:
    """For a client that only looks at what it is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

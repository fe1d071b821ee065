"""The certificate authority of one deployment: issues the certificate of its API, in time and again.

In the data folder::

    secrets/api-authority      its key and its certificate; made once
    secrets/api-certificate    key and certificate of the API; issued again when two thirds have passed
    api-ca.pem                 the certificate of the authority, to copy to other hosts
"""

import ipaddress
import socket
import string
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import psutil
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from api.certificate import CertificateFiles, names_of
from mitosis.client.trust import CA_FILE
from mitosis.contracts.errors import ConfigurationError
from mitosis.embedded.data_folder import DataFolder, write_private

LIFETIME = timedelta(days=90)
RENEW_BEFORE = LIFETIME / 3
AUTHORITY_LIFETIME = timedelta(days=3650)
BEFORE_NOW = timedelta(hours=1)
"""Certificates are valid from before now, for hosts whose clocks are behind."""


LETTERS = frozenset(string.ascii_lowercase + string.digits + "-._*")
"""Of a name in a certificate."""


class Authority:
    """The authority of a data folder, and the certificate of the API that listens on ``host``."""

    def __init__(self, folder: DataFolder, host: str, names: tuple[str, ...] = ()) -> None:
        """``names``: further ones that clients use."""
        self._own = folder.secret_path("api-authority")
        self._issued = folder.secret_path("api-certificate")
        self.ca_file = folder.path / CA_FILE
        self._host = host
        self._names = names

    def files(self) -> CertificateFiles:
        """Return the files of the API's certificate, which :meth:`renew` writes."""
        return CertificateFiles(self._issued, self._issued, self.renew)

    def renew(self, now: datetime) -> None:
        """Make what is missing, and issue the certificate again if it ends soon or lacks a name.

        Raises:
            ConfigurationError: the authority's file has something else in it.
        """
        key, certificate = self._authority(now)
        public = certificate.public_bytes(Encoding.PEM)
        if not self.ca_file.exists() or self.ca_file.read_bytes() != public:
            write_private(self.ca_file, public)
        names = sorted(set(api_names(self._host, self._names)))
        if self._due(certificate, names, now):
            write_private(self._issued, _issue(key, certificate, names, now))

    def _authority(self, now: datetime) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        if not self._own.exists():
            write_private(self._own, _new_authority(now))
        try:
            return _read(self._own)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigurationError(
                f"{self._own} has no key with its certificate: restore it, or remove it to start with a"
                f" new authority, and copy the new {CA_FILE} to all hosts",
                field="api.tls",
            ) from error

    def _due(self, authority: x509.Certificate, names: list[str], now: datetime) -> bool:
        try:
            _, issued = _read(self._issued)
            issued.verify_directly_issued_by(authority)
        except (OSError, ValueError, TypeError, InvalidSignature):
            return True  # missing, broken or of an earlier authority
        if not set(names) <= set(names_of(issued)):
            return True
        ends = issued.not_valid_after_utc
        return ends - now < RENEW_BEFORE and ends < authority.not_valid_after_utc


def api_names(host: str, further: tuple[str, ...]) -> Iterator[str]:
    """Yield the names and addresses under which clients reach an API that listens on ``host``.

    In the form in which a certificate has them, so that both can be compared.

    Raises:
        ConfigurationError: one of the further names cannot be in a certificate.
    """
    yield from ("localhost", "127.0.0.1", "::1")
    for own in (host, socket.gethostname()):
        with suppress(ConfigurationError):
            yield _normal(own)
    yield from map(_normal, further)
    if host in ("0.0.0.0", "::"):  # noqa: S104 - asks whether it is all addresses
        for addresses in psutil.net_if_addrs().values():
            for one in addresses:
                if one.family in (socket.AF_INET, socket.AF_INET6) and "%" not in one.address:
                    yield one.address


def _normal(name: str) -> str:
    """Return an address as Python writes it, a name in small letters and ASCII. Source: RFC 5890."""
    text = name.strip().rstrip(".")
    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        pass
    try:
        encoded = text.lower().encode("idna").decode()
    except UnicodeError as error:
        raise _no_name(name) from error
    if not encoded or not set(encoded) <= LETTERS:
        raise _no_name(name)
    return encoded


def _no_name(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"api.tls_names: {name!r} is neither a host name nor an address", field="api.tls_names"
    )


def _read(path: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    content = path.read_bytes()
    key = load_pem_private_key(content, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("another kind of key")  # noqa: TRY004 - as cryptography says it
    return key, x509.load_pem_x509_certificate(content)


def _new_authority(now: datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = f"Mitosis authority, made on {socket.gethostname()} {now:%Y-%m-%d}"
    own = _name(name)
    made = (
        _begun(own, own, key.public_key(), now, now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _together(key, made)


def _issue(
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    names: list[str],
    now: datetime,
) -> bytes:
    """Return a new key and its certificate for these names. Source: RFC 5280, section 4.2."""
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + LIFETIME, authority.not_valid_after_utc)
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    issued = (
        _begun(_name("Mitosis API"), authority.subject, key.public_key(), now, ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(map(_general, names)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    return _together(key, issued)


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE_NOW)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _together(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bytes:
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret + certificate.public_bytes(Encoding.PEM)

"""The certificate of the API over TLS: loads it, loads it again when it has changed, warns before it ends.

A new certificate gets an SSL context of its own, which new connections use: a context that has loaded two
certificates of different key types would go on offering the older one. Open connections are not touched.
"""

import asyncio
import ipaddress
import logging
import ssl
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from mitosis.concurrency import cancel_and_wait
from mitosis.contracts.bounded_files import MOST_DOCUMENT_BYTES, read_bounded
from mitosis.contracts.errors import ConfigurationError, MitosisError

LOOK_SECONDS = 60.0
WARN_BEFORE = timedelta(days=14)
WARN_EVERY = timedelta(days=1)
KEY_FIELD, CERTIFICATE_FIELD = "api.tls_key_file", "api.tls_certificate_file"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of a certificate; both may be the same one."""

    certificate: Path
    """PEM: the certificate, then those of its intermediate authorities."""
    key: Path
    renew: Callable[[datetime], None] = lambda _: None
    """Called at each look, with the time: writes the files again when that is due."""


@dataclass(frozen=True, slots=True)
class _Loaded:
    context: ssl.SSLContext
    chain: tuple[x509.Certificate, ...]
    content: tuple[bytes, bytes]

    @property
    def expires_at(self) -> datetime:
        return min(one.not_valid_after_utc for one in self.chain)


class ServedCertificate:
    """The certificate that a server shows to new connections."""

    def __init__(self, files: CertificateFiles, now: datetime) -> None:
        """Load the files.

        Raises:
            ConfigurationError: names the setting, the file and what is wrong.
        """
        self._files = files
        self._warned_at: datetime | None = None
        self._refusal = ""
        files.renew(now)
        self._loaded = _load(files)
        self.context = self._loaded.context
        """For the server: takes the present certificate for each new connection."""
        self.context.sni_callback = self._choose
        self._warn(now)

    @property
    def expires_at(self) -> datetime:
        """The end of the certificate, or of an intermediate one that ends sooner."""
        return self._loaded.expires_at

    def covers(self, host: str) -> bool:
        """Return whether the certificate is for this name or address."""
        return any(_matches(name, host) for name in self.names)

    @property
    def names(self) -> list[str]:
        """The names and addresses that the certificate is for."""
        return names_of(self._loaded.chain[0])

    def look(self, now: datetime) -> None:
        """Renew the files if that is due, load them if they have changed, and warn before the end.

        Files that cannot be used are logged; the certificate before stays in use.
        """
        try:
            self._files.renew(now)
            if _content(self._files) != self._loaded.content:
                self._loaded = _load(self._files)
                facts = {"serial": f"{self._loaded.chain[0].serial_number:x}"}
                log.info("certificate.loaded", extra=facts | self._facts(now))
            self._refusal = ""
        except (MitosisError, OSError) as error:
            if str(error) != self._refusal:  # not each minute
                log.error("certificate.refused", extra={"reason": str(error)})  # noqa: TRY400
            self._refusal = str(error)
        self._warn(now)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look each minute while the context is open."""
        watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield
        finally:
            await cancel_and_wait(watching)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await asyncio.to_thread(self.look, datetime.now(UTC))
            except Exception:  # the next look may work; without any, no certificate is renewed
                log.exception("certificate.not_looked_at")

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        connection.context = self._loaded.context

    def _warn(self, now: datetime) -> None:
        if self.expires_at - now > WARN_BEFORE:
            self._warned_at = None
            return
        expired = now >= self.expires_at
        since = self._warned_at
        if since is not None:
            just_expired = expired and since < self.expires_at
            if now - since < WARN_EVERY and not just_expired:
                return
        self._warned_at = now
        if expired:
            log.error("certificate.expires", extra=self._facts(now))
        else:
            log.warning("certificate.expires", extra=self._facts(now))

    def _facts(self, now: datetime) -> dict[str, object]:
        days_left = (self.expires_at - now) / timedelta(days=1)
        return {
            "file": str(self._files.certificate),
            "expires_at": self.expires_at.isoformat(),
            "days_left": round(days_left, 2),
        }


def names_of(certificate: x509.Certificate) -> list[str]:
    """Return the names and addresses that a certificate is for. Source: RFC 5280, section 4.2.1.6."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = map(str, found.get_values_for_type(x509.IPAddress))
    return [*found.get_values_for_type(x509.DNSName), *addresses]


def _matches(name: str, host: str) -> bool:
    """Compare a name of a certificate with a host; ``*`` is one label. Source: RFC 9525, section 6.3."""
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(host)
    except ValueError:
        pass
    name, host = name.lower(), host.lower()
    return name == host or (name.startswith("*.") and name[1:] == host[host.find(".") :])


def _content(files: CertificateFiles) -> tuple[bytes, bytes]:
    return _read(files.certificate, CERTIFICATE_FIELD), _read(files.key, KEY_FIELD)


def _load(files: CertificateFiles) -> _Loaded:
    """Check and load the files; a change during this shows as a difference at the next look."""
    content = _content(files)
    chain = _chain(content[0], files.certificate)
    _check_key(content[1], files.key, chain[0], files.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(files.certificate, files.key, password="")
    except (ssl.SSLError, OSError) as error:
        raise _unusable(CERTIFICATE_FIELD, files.certificate, str(error)) from error
    return _Loaded(context, chain, content)


def _read(path: Path, field: str) -> bytes:
    try:
        return read_bounded(path, MOST_DOCUMENT_BYTES)
    except OSError as error:
        raise _unusable(field, path, str(error.strerror)) from error


def _chain(content: bytes, path: Path) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(content))
    except ValueError as error:
        reason = "it has no certificate in PEM (-----BEGIN CERTIFICATE-----)"
        raise _unusable(CERTIFICATE_FIELD, path, reason) from error


def _check_key(content: bytes, path: Path, certificate: x509.Certificate, of: Path) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & stat.S_IRWXO:
        reason = f"other users can use it (mode {mode:04o}): chmod o= {path}"
        raise _unusable(KEY_FIELD, path, reason)
    try:
        key = load_pem_private_key(content, None)
    except TypeError as error:
        raise _unusable(KEY_FIELD, path, "it has a password: write the key without one") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        reason = "it has no private key in PEM (-----BEGIN PRIVATE KEY-----)"
        raise _unusable(KEY_FIELD, path, reason) from error
    if key.public_key() != certificate.public_key():
        reason = f"it is not the key of the first certificate in {of}"
        raise _unusable(KEY_FIELD, path, reason)


def _unusable(field: str, path: Path, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{field}: cannot use {path}: {reason}", field=field)

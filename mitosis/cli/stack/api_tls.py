"""The certificate of the API from the settings, and the address that clients of this host use then."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from api.certificate import CertificateFiles, ServedCertificate
from mitosis.client.trust import CA_FILE
from mitosis.contracts.errors import ConfigurationError
from mitosis.embedded.authority import Authority
from mitosis.embedded.data_folder import DataFolder
from mitosis.settings import Settings


def served_certificate(settings: Settings, folder: DataFolder) -> ServedCertificate | None:
    """Return the certificate that the settings name or ask for; None: the API speaks plain HTTP.

    Raises:
        ConfigurationError: names the setting, the file and what is wrong.
    """
    api, now = settings.api, datetime.now(UTC)
    if api.tls == "own":
        return ServedCertificate(Authority(folder, api.host, api.tls_names).files(), now)
    if api.tls_certificate_file is None or api.tls_key_file is None:
        return None
    return ServedCertificate(CertificateFiles(api.tls_certificate_file, api.tls_key_file), now)


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """How programs of this host reach the API."""

    url: str
    ca_file: Path | None


def local_access(
    settings: Settings, folder: DataFolder, url: str, certificate: ServedCertificate | None
) -> LocalAccess:
    """Return the address to use for an API that is served at ``url``.

    Raises:
        ConfigurationError: the certificate is for other names than that of the address.
    """
    if settings.api.tls == "own":
        return LocalAccess(url, folder.path / CA_FILE)
    if certificate is None:
        return LocalAccess(url, None)
    url = settings.api.url or url
    host = urlsplit(url).hostname or ""
    if not certificate.covers(host):
        names = ", ".join(certificate.names) or "no name"
        raise ConfigurationError(
            f"api.tls_certificate_file: {settings.api.tls_certificate_file} is for {names}, not for {host}:"
            " set api.url to the address of this API with one of its names",
            field="api.url",
        )
    return LocalAccess(url, settings.api.ca_file)

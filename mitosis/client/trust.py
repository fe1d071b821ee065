"""Which certificates clients of the API trust over https, and what an untrusted one means."""

import ipaddress
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from mitosis.contracts.errors import ConfigurationError
from mitosis.unix_socket import SCHEME

CA_FILE = "api-ca.pem"
"""In a data folder: the certificate of the authority that its API has made for itself."""
_PASSES = {9, 10}
"""Not valid yet, and expired: the server gets another certificate. Source: X509_V_ERR in x509_vfy.h."""


def trusting(ca_file: Path | None) -> ssl.SSLContext:
    """Return a context that trusts the certificates in ``ca_file``; None: those of the system.

    Raises:
        ConfigurationError: the file cannot be read, or has no certificate; names ``api.ca_file``.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        reason = "it has no certificates in PEM"
        raise _unusable(ca_file, reason) from error
    except OSError as error:
        raise _unusable(ca_file, str(error.strerror)) from error


def _unusable(ca_file: Path | None, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"api.ca_file: cannot use {ca_file}: {reason}; name a file with the certificates to trust",
        field="api.ca_file",
    )


def refused_certificate(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the refusal of a certificate that has led to ``error``, if one has."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def refusal(url: str, refused: ssl.SSLCertVerificationError, ca_file: Path | None) -> str:
    """Return what a refused certificate means for the user, and what would be right."""
    trusted = f"api.ca_file is {ca_file}" if ca_file else "api.ca_file is not set"
    text = f"the certificate of the API at {url} is not trusted: {refused.verify_message}"
    if passes(refused):
        return text
    return (
        f"{text} ({trusted}; it names a file with the certificate of the authority that issued the API's,"
        f" as {CA_FILE} of the API's data folder: MITOSIS_API__CA_FILE)"
    )


def passes(refused: ssl.SSLCertVerificationError) -> bool:
    """Return whether the refusal ends when the server gets its next certificate."""
    return refused.verify_code in _PASSES


def is_loopback(url: str) -> bool:
    """Return whether an address is one of this machine alone."""
    if url.startswith(SCHEME):
        return True
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

"""Checks the certificate that an API shows over https: whether it is trusted here, and until when."""

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from mitosis.cli.doctor.check import Check, fail, ok, warn
from mitosis.client.trust import refusal, refused_certificate, trusting
from mitosis.contracts.errors import ConfigurationError

CONNECT_SECONDS = 5.0
ENDS_SOON = timedelta(days=14)
NAME = "api certificate"
RENEW = (
    "own certificates (api.tls = own) are renewed by the API; replace the files of others:"
    " the API loads them within a minute"
)


def certificate_check(url: str, ca_file: Path | None, now: datetime) -> Check:
    """Connect to the API and check its certificate."""
    try:
        ends = _end_of_certificate(url, trusting(ca_file))
    except ConfigurationError as error:
        return fail(NAME, error.message, "set MITOSIS_API__CA_FILE")
    except OSError as error:
        if refused := refused_certificate(error):
            return fail(NAME, refusal(url, refused, ca_file), RENEW)
        return fail(NAME, f"{url}: {error}", "does the API speak https there (api.tls)?")
    return end_check(ends, now)


def end_check(ends: datetime, now: datetime) -> Check:
    """Check how long a certificate is valid."""
    left = ends - now
    found = f"until {ends:%Y-%m-%d %H:%M} UTC, {left.days} days"
    return warn(NAME, found, RENEW) if left < ENDS_SOON else ok(NAME, found)


def _end_of_certificate(url: str, context: ssl.SSLContext) -> datetime:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    with (
        socket.create_connection((host, port), CONNECT_SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=host) as link,
    ):
        shown = link.getpeercert() or {}
    seconds = ssl.cert_time_to_seconds(str(shown["notAfter"]))
    return datetime.fromtimestamp(seconds, UTC)

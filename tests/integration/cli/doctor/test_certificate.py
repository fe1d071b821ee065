"""What `mitosis doctor` says of the certificate of an API."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from api.certificate import ServedCertificate
from mitosis.cli.doctor.certificate import certificate_check, end_check
from tests.support.certificates import DAY, NOW, authority


@contextmanager
def handshakes(context: ssl.SSLContext) -> Iterator[str]:
    """A server that makes the handshakes of its clients, and no more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(accepted, server_side=True).close()
                except OSError:
                    accepted.close()

        serving = Thread(target=serve, daemon=True)
        serving.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()


@pytest.mark.spec("S000-130")
def test_a_certificate_is_shown_with_its_end_and_one_that_is_not_trusted_with_what_to_set(
    tmp_path: Path,
) -> None:
    own = authority(tmp_path / "data")
    with handshakes(ServedCertificate(own.files(), NOW).context) as url:
        found = certificate_check(url, own.ca_file, NOW)
        assert (found.state, found.found[-9:]) == ("ok", ", 90 days")
        assert certificate_check(url, own.ca_file, NOW + 80 * DAY).state == "warn"
        untrusted = certificate_check(url, None, NOW)
    assert untrusted.state == "fail"
    assert "MITOSIS_API__CA_FILE" in untrusted.found
    missing = certificate_check(url, tmp_path / "missing", NOW)
    assert (missing.state, "missing: No such file" in missing.found) == ("fail", True)
    away = certificate_check(url, own.ca_file, NOW)
    assert (away.state, away.found.startswith(url)) == ("fail", True)


@pytest.mark.parametrize(("days", "state"), [(15, "ok"), (14, "ok"), (13.9, "warn")])
def test_an_end_within_14_days_is_a_warning(days: float, state: str) -> None:
    assert end_check(NOW + days * DAY, NOW).state == state

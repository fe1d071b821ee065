"""The certificate of the API: what is refused, what is loaded again, and when its end is announced."""

import logging
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from api.certificate import CertificateFiles, ServedCertificate
from mitosis.contracts.errors import ConfigurationError
from tests.support.certificates import DAY, NOW, edwards, elliptic, pem, private, self_signed

KEY = elliptic()
CERTIFICATE = self_signed(KEY)


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    key = private(tmp_path / "key.pem", pem(KEY))
    return CertificateFiles(private(tmp_path / "certificate.pem", CERTIFICATE), key)


def write(files: CertificateFiles, key: Any, **dates: datetime) -> None:
    files.key.write_bytes(pem(key))
    files.certificate.write_bytes(self_signed(key, **dates))


Spoil = Callable[[CertificateFiles], object]


@pytest.mark.parametrize(
    ("setting", "reason", "spoil"),
    [
        ("api.tls_certificate_file", "No such file", lambda files: files.certificate.unlink()),
        ("api.tls_key_file", "No such file", lambda files: files.key.unlink()),
        (
            "api.tls_certificate_file",
            "no certificate in PEM",
            lambda files: files.certificate.write_bytes(pem(KEY)),
        ),
        (
            "api.tls_key_file",
            "no private key in PEM",
            lambda files: files.key.write_bytes(CERTIFICATE),
        ),
        (
            "api.tls_key_file",
            "not the key of the first certificate",
            lambda files: files.key.write_bytes(pem(elliptic())),
        ),
        (
            "api.tls_key_file",
            "has a password",
            lambda files: files.key.write_bytes(pem(KEY, b"secret")),
        ),
        (
            "api.tls_key_file",
            "other users can use it (mode 0604)",
            lambda files: files.key.chmod(0o604),
        ),
    ],
)
def test_files_that_cannot_be_used_are_refused_with_setting_file_and_reason(
    files: CertificateFiles, setting: str, reason: str, spoil: Spoil
) -> None:
    spoil(files)
    with pytest.raises(ConfigurationError) as refused:
        ServedCertificate(files, NOW)
    assert refused.value.facts["field"] == setting
    text = str(refused.value)
    assert text.startswith(f"{setting}: cannot use {files.key.parent}/")
    assert reason in text
    assert "secret" not in text


@pytest.mark.spec("S000-130")
def test_files_that_have_changed_are_loaded_and_broken_ones_are_logged_once_and_not_used(
    files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    served = ServedCertificate(files, NOW)
    served.look(NOW)
    assert caplog.messages == []
    files.certificate.write_bytes(b"half of a cert")
    served.look(NOW)
    served.look(NOW)
    assert served.expires_at == NOW + 60 * DAY
    write(files, edwards(), ends=NOW + 90 * DAY)
    served.look(NOW)
    assert served.expires_at == NOW + 90 * DAY
    assert caplog.messages == ["certificate.refused", "certificate.loaded"]
    assert "tls_certificate_file" in vars(caplog.records[0])["reason"]
    assert vars(caplog.records[1])["days_left"] == 90


@pytest.mark.spec("S000-130")
def test_the_end_is_announced_from_14_days_before_it_once_a_day_and_as_an_error_after_it(
    files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    served = ServedCertificate(files, NOW)
    end = served.expires_at
    hours = 1 / 24
    for days_left in (14.1, 14, 13.5, 13, 13 - hours, 0.5, hours, 0, -hours, -1):
        served.look(end - days_left * DAY)
    found = [(record.levelname, vars(record)["days_left"]) for record in caplog.records]
    warned = [("WARNING", 14), ("WARNING", 13), ("WARNING", 0.5)]
    assert found == [*warned, ("ERROR", 0), ("ERROR", -1)]
    assert set(caplog.messages) == {"certificate.expires"}
    write(files, KEY, ends=end + 60 * DAY)
    served.look(end + DAY)
    assert len(caplog.records) == 5  # and none after it was replaced


def test_a_certificate_that_ends_soon_is_announced_at_the_start(
    files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    write(files, KEY, ends=NOW - 2 * DAY)
    assert ServedCertificate(files, NOW).expires_at == NOW - 2 * DAY
    assert [(one.levelname, one.message) for one in caplog.records] == [
        ("ERROR", "certificate.expires")
    ]


def test_an_intermediate_certificate_that_ends_sooner_counts(files: CertificateFiles) -> None:
    sooner = self_signed(elliptic(), ends=NOW + 20 * DAY)
    files.certificate.write_bytes(CERTIFICATE + sooner)
    assert ServedCertificate(files, NOW).expires_at == NOW + 20 * DAY


@pytest.mark.parametrize(
    ("host", "covered"),
    [
        ("api.test", True),
        ("API.test", True),
        ("a.wild.test", True),
        ("wild.test", False),
        ("a.b.wild.test", False),
        ("127.0.0.1", False),
        ("other.test", False),
    ],
)
def test_which_names_a_certificate_is_for(
    files: CertificateFiles, host: str, covered: bool
) -> None:
    files.certificate.write_bytes(self_signed(KEY, "api.test", "*.wild.test"))
    assert ServedCertificate(files, NOW).covers(host) is covered

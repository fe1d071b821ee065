"""The authority of a deployment: what it issues, for which names, and when again."""

import socket
import stat
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from cryptography import x509

from api.certificate import ServedCertificate
from mitosis.contracts.errors import ConfigurationError
from mitosis.embedded.authority import AUTHORITY_LIFETIME, LIFETIME
from tests.support.certificates import DAY, NOW, authority


def issued(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "secrets/api-certificate").read_bytes())


def test_it_issues_for_90_days_for_this_machine_and_the_address_it_listens_on(
    tmp_path: Path,
) -> None:
    own = authority(tmp_path / "data", "api.test", host="192.0.2.7")
    served = ServedCertificate(own.files(), NOW)
    assert served.expires_at == NOW + 90 * DAY
    for name in ("localhost", "127.0.0.1", "::1", "192.0.2.7", "api.test"):
        assert served.covers(name), served.names
    assert not served.covers("elsewhere.test")
    for name in ("secrets/api-authority", "secrets/api-certificate"):
        assert stat.S_IMODE((tmp_path / "data" / name).stat().st_mode) == 0o600
    public = own.ca_file.read_bytes()
    assert b"PRIVATE" not in public
    issued(tmp_path / "data").verify_directly_issued_by(x509.load_pem_x509_certificate(public))


def test_on_all_addresses_it_is_for_each_of_them(tmp_path: Path) -> None:
    served = ServedCertificate(authority(tmp_path / "data", host="::").files(), NOW)
    for interface in psutil.net_if_addrs().values():
        for one in interface:
            if one.family is socket.AF_INET:
                assert served.covers(one.address), served.names


@pytest.mark.spec("S000-130")
def test_it_issues_again_when_less_than_a_third_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    own = authority(folder)
    served = ServedCertificate(own.files(), NOW)
    public = own.ca_file.read_bytes()
    due = NOW + LIFETIME * 2 / 3
    served.look(due)
    assert served.expires_at == NOW + LIFETIME
    served.look(due + timedelta(minutes=1))
    assert served.expires_at == due + timedelta(minutes=1) + LIFETIME
    served.look(due + 1000 * DAY)  # it did not run for years
    assert served.expires_at == due + 1000 * DAY + LIFETIME
    assert own.ca_file.read_bytes() == public


def test_it_issues_again_for_another_name_and_when_the_file_is_broken_or_of_another_authority(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "data"
    authority(folder).renew(NOW)
    first = issued(folder).serial_number
    authority(folder).renew(NOW)
    assert issued(folder).serial_number == first
    authority(folder, "api.test").renew(NOW)
    second = issued(folder).serial_number
    assert second != first
    authority(folder).renew(NOW)  # a name more than needed is no reason
    assert issued(folder).serial_number == second
    (folder / "secrets/api-certificate").write_bytes(b"")
    authority(folder).renew(NOW)
    third = issued(folder).serial_number
    (folder / "secrets/api-authority").unlink()
    own = authority(folder)
    own.renew(NOW)
    assert issued(folder).serial_number != third
    issued(folder).verify_directly_issued_by(
        x509.load_pem_x509_certificate(own.ca_file.read_bytes())
    )


def test_no_certificate_outlives_the_authority_and_the_last_one_stays(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    authority(folder).renew(NOW)
    late = NOW + AUTHORITY_LIFETIME - 20 * DAY
    authority(folder).renew(late)
    last = issued(folder)
    assert last.not_valid_after_utc == NOW + AUTHORITY_LIFETIME
    authority(folder).renew(late + DAY)
    assert issued(folder) == last


def test_a_broken_authority_is_named_and_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    authority(folder).renew(NOW)
    own = folder / "secrets/api-authority"
    own.write_bytes(b"lost")
    with pytest.raises(ConfigurationError, match=f"{own} has no key") as refused:
        authority(folder).renew(NOW)
    assert refused.value.facts["field"] == "api.tls"
    assert own.read_bytes() == b"lost"


def test_names_are_compared_in_the_form_in_which_a_certificate_has_them(tmp_path: Path) -> None:
    """Else it would be issued again at each look."""
    names = ("API.Test.", "bücher.example", "[2001:DB8:0::7]", " 192.0.2.7 ", "*.Example")
    own = authority(tmp_path / "data", *names)
    served = ServedCertificate(own.files(), NOW)
    first = issued(tmp_path / "data").serial_number
    served.look(NOW + timedelta(minutes=1))
    assert issued(tmp_path / "data").serial_number == first
    for name in ("api.test", "xn--bcher-kva.example", "2001:db8::7", "192.0.2.7", "a.example"):
        assert served.covers(name), served.names


@pytest.mark.parametrize("name", ["a b", "", "a..b", "http://api", "\x00"])
def test_what_is_no_name_is_refused_by_its_setting(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"api\.tls_names"):
        ServedCertificate(authority(tmp_path / "data", name).files(), NOW)

"""Which certificate the settings ask for, and how programs of this host reach the API then."""

from pathlib import Path

import pytest

from mitosis.cli.stack.api_tls import local_access, served_certificate
from mitosis.contracts.errors import ConfigurationError
from mitosis.embedded.data_folder import DataFolder
from mitosis.settings import ApiSettings, Settings
from tests.support.certificates import elliptic, pem, private, self_signed

URL = "https://127.0.0.1:8400"


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data")


def with_files(folder: Path, *names: str, url: str | None = None) -> Settings:
    key = elliptic()
    return Settings(
        api=ApiSettings(
            tls="files",
            tls_certificate_file=private(folder / "c.pem", self_signed(key, *names)),
            tls_key_file=private(folder / "k.pem", pem(key)),
            ca_file=folder / "ca.pem",
            url=url,
        )
    )


def test_without_tls_there_is_no_certificate_and_nothing_to_trust(folder: DataFolder) -> None:
    assert served_certificate(Settings(), folder) is None
    access = local_access(Settings(), folder, "http://127.0.0.1:8400", None)
    assert (access.url, access.ca_file) == ("http://127.0.0.1:8400", None)


def test_with_own_programs_of_this_host_trust_the_authority_of_the_data_folder(
    folder: DataFolder,
) -> None:
    settings = Settings(api=ApiSettings(tls="own", tls_names=("api.test",), url="https://else"))
    certificate = served_certificate(settings, folder)
    assert certificate is not None
    assert certificate.covers("api.test")
    access = local_access(settings, folder, URL, certificate)
    assert (access.url, access.ca_file) == (URL, folder.path / "api-ca.pem")


def test_with_files_they_use_an_address_that_the_certificate_is_for(
    folder: DataFolder, tmp_path: Path
) -> None:
    named = with_files(tmp_path, "api.test", url="https://api.test:8400")
    access = local_access(named, folder, URL, served_certificate(named, folder))
    assert (access.url, access.ca_file) == ("https://api.test:8400", tmp_path / "ca.pem")
    here = with_files(tmp_path)
    assert local_access(here, folder, URL, served_certificate(here, folder)).url == URL
    wrong = with_files(tmp_path, "api.test", "b.test")
    with pytest.raises(ConfigurationError) as refused:
        local_access(wrong, folder, URL, served_certificate(wrong, folder))
    assert "is for api.test, b.test, not for 127.0.0.1: set api.url" in str(refused.value)

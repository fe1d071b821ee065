"""A pytest plugin for root without user namespaces, as in most containers.

PostgreSQL then runs as a system user, who must be able to enter (not list) the folders above its
files, and pytest makes its temporary folders for root alone. Elsewhere this changes nothing.
"""

import shutil
import tempfile
from pathlib import Path

import pytest

from mitosis.embedded.privileges import find_privileges


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """A place of our own: other sessions close ``/tmp/pytest-of-root`` whenever they start."""
    if config.option.basetemp is None and find_privileges().name is not None:
        place = Path(tempfile.mkdtemp(prefix="mt-"))
        place.chmod(0o711)
        config.add_cleanup(lambda: shutil.rmtree(place, ignore_errors=True))
        config.option.basetemp = place / "t"


@pytest.fixture(scope="session")
def tmp_path_factory(tmp_path_factory: pytest.TempPathFactory) -> pytest.TempPathFactory:
    """pytest's own, whose folders others may enter where that is needed."""
    if find_privileges().name is not None:
        make = tmp_path_factory.mktemp
        tmp_path_factory.getbasetemp().chmod(0o711)

        def mktemp(basename: str, numbered: bool = True) -> Path:
            folder = make(basename, numbered)
            folder.chmod(0o711)
            return folder

        tmp_path_factory.mktemp = mktemp  # type: ignore[method-assign]
    return tmp_path_factory

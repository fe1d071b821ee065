"""The wheel, in a fresh environment beside other people's packages of the same names.

The environment borrows the dependencies of the one that runs the tests, so nothing is downloaded.
Its site-packages hold decoys named as our application packages; each raises when imported. Our
processes must see ours, and a worker process (which runs a user's handlers) must see the decoys.
"""

import os
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from mitosis.version import __version__
from tests.support.checkout import ROOT
from tests.support.wheels import Environment, build, new_environment

APPLICATION_PACKAGES = ("workflows", "activities", "manager_agent", "api", "migrations")

# Imports every name given and prints where it came from, or "decoy".
SHOW_ORIGINS = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        print(name, importlib.import_module(name).__file__)
    except RuntimeError as error:
        print(name, error)
"""


def origins_of(
    environment: Environment, *names: str, prelude: str = "", flags: Sequence[str] = ()
) -> dict[str, str]:
    printed = environment.run("python", *flags, "-c", prelude + SHOW_ORIGINS, *names)
    return dict(line.split(" ", 1) for line in printed.splitlines())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkout -> sdist -> wheel: what is missing from the sdist is missing from the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    archive = build(ROOT, folder / "sdist", "--sdist")
    subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)
    source = folder / archive.name.removesuffix(".tar.gz")
    return build(source, folder / "wheel", "--wheel")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = new_environment(tmp_path_factory.mktemp("environment"))
    for name in APPLICATION_PACKAGES:
        (made.site_packages / name).mkdir()
        (made.site_packages / name / "__init__.py").write_text("raise RuntimeError('decoy')\n")
    made.install(wheel)
    return made


def test_the_wheel_installs_one_top_level_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top_level = {name.split("/")[0] for name in names}
    assert {name for name in top_level if not name.endswith(".dist-info")} == {"mitosis"}
    for package in APPLICATION_PACKAGES:
        assert any(name.startswith(f"mitosis/_app/{package}/") for name in names), package
    assert "mitosis/py.typed" in names


def test_the_wheel_carries_every_file_that_git_has(wheel: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    listed = ["git", "-C", str(ROOT), "ls-files", "mitosis", *APPLICATION_PACKAGES, "examples"]
    tracked = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    expected = {path if path.startswith("mitosis/") else f"mitosis/_app/{path}" for path in tracked}
    assert expected - shipped == set()


def test_our_processes_import_our_packages(environment: Environment) -> None:
    origins = origins_of(
        environment,
        *APPLICATION_PACKAGES[:4],
        prelude="from mitosis.app_root import enter_app; enter_app()",
    )
    shipped = environment.site_packages / "mitosis" / "_app"
    for name, origin in origins.items():
        assert origin.startswith(f"{shipped}/{name}/"), (name, origin)


def test_worker_processes_import_the_users_packages(environment: Environment) -> None:
    """A worker is started as ``python -P -m mitosis.worker``: nothing of ours is on its path."""
    origins = origins_of(
        environment, *APPLICATION_PACKAGES, prelude="import mitosis.worker", flags=["-P"]
    )
    assert origins == dict.fromkeys(APPLICATION_PACKAGES, "decoy")


def test_the_command_works_beside_the_decoys(environment: Environment) -> None:
    assert __version__ in environment.run("mitosis", "--version")
    assert "0 of" in environment.run("mitosis", "doctor").splitlines()[-1]
    assert "temporal.namespace" in environment.run("mitosis", "config", "show", "--all")


def test_nothing_was_read_from_the_checkout(environment: Environment) -> None:
    origins = origins_of(environment, "mitosis")
    assert origins["mitosis"] == str(environment.site_packages / "mitosis" / "__init__.py")
    assert str(ROOT) not in os.pathsep.join(origins.values())

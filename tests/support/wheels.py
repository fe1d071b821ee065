"""Wheels of this checkout and of others, and environments of their own to install them in.

An environment borrows the dependencies of the one that runs the tests, so nothing is downloaded.
"""

import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with the wheel, and a folder outside every checkout to work in."""

    folder: Path

    @property
    def site_packages(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def run(self, *command: str) -> str:
        """Run a program of the environment, from elsewhere and without our environment's paths."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "LANG": "C.UTF-8"}
        program = self.folder / "bin" / command[0]
        done = subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def install(self, wheel: Path) -> None:
        """Install a wheel beside the borrowed dependencies."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.folder / "bin" / "python")]
        subprocess.run([*pip, "install", "-qq", "--no-deps", "--no-index", str(wheel)], check=True)


def build(source: Path, target: Path, *kinds: str) -> Path:
    """Build ``source`` with the installed hatchling, offline; the one file that appeared."""
    options = ["--no-isolation", *kinds, "--outdir", str(target), str(source)]
    command = [sys.executable, "-m", "build", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = target.iterdir()
    return built


def new_environment(folder: Path) -> Environment:
    """Make an environment with our dependencies, without us."""
    made = Environment(folder)
    venv.create(made.folder, symlinks=True)
    _borrow_dependencies(made)
    return made


def _borrow_dependencies(made: Environment) -> None:
    """Link what is installed here, except ourselves: a .pth file would bring our own along."""
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        ours = entry.name.startswith(("mitosis", "_mitosis", "pip", "__pycache__"))
        target = made.site_packages / entry.name
        if not ours and entry.suffix != ".pth" and not target.exists():
            target.symlink_to(entry)
    # The one dependency that is a program and no package.
    (made.folder / "bin" / "temporal").symlink_to(Path(sysconfig.get_path("scripts")) / "temporal")

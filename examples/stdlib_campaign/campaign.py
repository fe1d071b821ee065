"""The commands of the campaign (a setup hook, one command per file, a teardown hook) and its verification.

The setup hook copies every non-empty module of the interpreter's standard library into a scratch folder
of the host. Each task compresses one staged file and writes the SHA-256 of its content, both into the
results folder. The teardown hook removes the scratch folder; the results stay.

:func:`verify` does not rely on anything that Mitosis stored: it reads the interpreter's own files,
decompresses every result and recomputes every checksum. This file is also the setup hook (standard
library only) and runs on a host as ``python -I campaign.py SCRATCH RESULTS``.
"""

import gzip
import hashlib
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPRESS = 'gzip -nc -- "$1" > "$2.gz" && sha256sum < "$1" > "$2.sha256"'
"""Run as ``sh -c COMPRESS sh STAGED RESULT``: the paths are arguments, never part of the script."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """One run of the example. ``workspace`` is an absolute folder that the host can write to."""

    workspace: Path

    @property
    def scratch(self) -> Path:
        """The folder for staged files; the teardown hook removes it."""
        return self.workspace / "scratch"

    @property
    def results(self) -> Path:
        """The folder that the tasks write to; it is kept."""
        return self.workspace / "results"

    def setup_command(self) -> list[str]:
        """Return the argv of the setup hook."""
        return [sys.executable, "-I", __file__, str(self.scratch), str(self.results)]

    def teardown_command(self) -> list[str]:
        """Return the argv of the teardown hook."""
        return ["rm", "-rf", "--", str(self.scratch)]

    def command(self, name: str) -> list[str]:
        """Return the argv of the task for the file staged as ``name``."""
        return ["sh", "-c", COMPRESS, "sh", str(self.scratch / name), str(self.results / name)]


def modules() -> Iterator[tuple[str, Path]]:
    """Yield every non-empty module of the standard library as ``(flat name, source file)``, sorted."""
    root = Path(sysconfig.get_path("stdlib")).resolve()
    skipped = {"site-packages", "dist-packages", "__pycache__"}
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if not skipped.intersection(inside.parts) and path.is_file() and path.stat().st_size:
            yield ".".join(inside.parts), path


def stage(scratch: Path, results: Path) -> int:
    """Copy the modules into a new scratch folder, as the setup hook; return their number."""
    scratch.mkdir(parents=True)
    results.mkdir(parents=True, exist_ok=True)
    staged = [shutil.copyfile(source, scratch / name) for name, source in modules()]
    return len(staged)


@dataclass(frozen=True, slots=True)
class Verification:
    """The findings of :func:`verify`; ``problems`` is empty if every file is correct."""

    files: int
    source_bytes: int
    compressed_bytes: int
    problems: tuple[str, ...]


def verify(campaign: Campaign) -> Verification:
    """Decompress every result and recompute every checksum from the interpreter's own files."""
    files = source_bytes = compressed_bytes = 0
    problems = []
    expected = set()
    for name, source in modules():
        files += 1
        expected |= {f"{name}.gz", f"{name}.sha256"}
        content = source.read_bytes()
        source_bytes += len(content)
        packed, checksum = campaign.results / f"{name}.gz", campaign.results / f"{name}.sha256"
        if not (packed.exists() and checksum.exists()):
            problems.append(f"{name}: no result")
            continue
        compressed_bytes += packed.stat().st_size
        if gzip.decompress(packed.read_bytes()) != content:
            problems.append(f"{name}: decompresses to other content")
        if checksum.read_text().split()[0] != hashlib.sha256(content).hexdigest():
            problems.append(f"{name}: wrong checksum")
    strays = {path.name for path in campaign.results.iterdir()} - expected
    problems += [f"{name}: unexpected file" for name in sorted(strays)]
    if campaign.scratch.exists():
        problems.append(f"{campaign.scratch} was not removed by the teardown hook")
    return Verification(files, source_bytes, compressed_bytes, tuple(problems))


if __name__ == "__main__":
    print(f"staged {stage(Path(sys.argv[1]), Path(sys.argv[2]))} files")

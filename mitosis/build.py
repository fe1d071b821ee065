"""Names the build of a control worker: two builds may write histories that the other one cannot replay."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

from mitosis.app_root import app_root
from mitosis.version import __version__

DIGITS = 10
"""Of the digest of the sources: enough for the few versions that run beside each other."""


@cache
def build_id(revision: str) -> str:
    """Return ``VERSION-REVISION-DIGEST``: of the release, its schema, and the code that writes histories.

    Two checkouts of one release differ in the last part. It reads some 150 files, once in a process.
    """
    return f"{__version__}-{revision}-{digest(_sources())}"


def _sources() -> Iterable[Path]:
    root, package = app_root(), Path(__file__).resolve().parent
    folders = (root / "workflows", root / "activities", package / "contracts")
    return chain.from_iterable(sorted(folder.rglob("*.py")) for folder in folders)


def digest(files: Iterable[Path]) -> str:
    """Return the start of the digest of these files, of their names and contents, in this order."""
    found = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        found.update(f"{file.name} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()[:DIGITS]


def newest(builds: Sequence[str]) -> str:
    """Return the latest of some builds: by release, then by schema, then the last one in the order given.

    Raises:
        ValueError: there are none.
    """
    return max(reversed(builds), key=_order)


def _order(build: str) -> tuple[tuple[int, ...], str]:
    version, _, rest = build.partition("-")
    release = re.match(r"\d+(\.\d+)*", version)
    numbers = tuple(int(part) for part in release[0].split(".")) if release else ()
    return numbers, rest.partition("-")[0]

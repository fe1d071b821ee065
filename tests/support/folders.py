"""Temporary folders that are gone when their test has ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.waiting import wait_until

REMOVAL_SECONDS = 20.0


@contextmanager
def short_folder(place: str | None = None) -> Iterator[Path]:
    """A new folder in ``place``, removed at the end.

    A server that was killed may still write while it ends: then its folder is removed again.

    Raises:
        AssertionError: it is written into for longer than 20 s.
    """
    folder = TemporaryDirectory(prefix="mt-", dir=place)
    path = Path(folder.name)
    try:
        yield path
    finally:
        wait_until(
            lambda: _is_removed(folder),
            REMOVAL_SECONDS,
            lambda: f"still there: {[str(each) for each in path.rglob('*')]}",
        )


def _is_removed(folder: TemporaryDirectory[str]) -> bool:
    try:
        folder.cleanup()
    except OSError:  # not empty
        return False
    return True

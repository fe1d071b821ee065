"""Reads files that users name or drop, up to a limit: before parsing, whose time grows with the size.

Standard library only.
"""

import errno
from pathlib import Path
from typing import BinaryIO

MOST_SECRET_BYTES = 64_000
"""Of a file with a token, a key, certificates or a password."""
MOST_DOCUMENT_BYTES = 2_000_000
"""Of settings, a hook, a plan, a template, stored logins; the API takes bodies of 2 MB."""
MOST_TASKS_BYTES = 256_000_000
"""Of a file with tasks, inputs or a workload; a submission may have as much."""


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a file of at most ``most`` bytes.

    Raises:
        OSError: it cannot be read; its ``errno`` is ``EFBIG`` if it has more, which ``strerror`` says.
    """
    with path.open("rb") as file:
        return read_stream(file, most)


def read_stream(stream: BinaryIO, most: int) -> bytes:
    """Return the rest of a stream of at most ``most`` bytes; see :func:`read_bounded`."""
    content = stream.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes")
    return content

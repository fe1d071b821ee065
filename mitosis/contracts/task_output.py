"""The output of a task in the detail of its result: as text, and as base64 if the text is not exact.

In ``stdout``, NUL and bytes that are not UTF-8 are U+FFFD. If that differs from the kept bytes,
``stdout_base64`` has them. The same holds for ``stderr``.
"""

import base64
from collections.abc import Mapping


def exact_form(data: bytes, text: str) -> str | None:
    """Return the bytes in base64; None if the text is exact."""
    return None if text.encode() == data else base64.b64encode(data).decode()


def readable(data: bytes) -> str:
    """Decode UTF-8; undecodable bytes and NUL, which PostgreSQL cannot store, become U+FFFD."""
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


def detail_of(stream: str, data: bytes) -> dict[str, str | None]:
    """Return the members of a detail for this output."""
    text = readable(data)
    return {stream: text, f"{stream}_base64": exact_form(data, text)}


def kept_bytes(detail: Mapping[str, object] | None, stream: str) -> bytes:
    """Return the kept part of ``stdout`` or ``stderr``, byte by byte."""
    found = detail or {}
    exact = found.get(f"{stream}_base64")
    if isinstance(exact, str):
        return base64.b64decode(exact)
    return str(found.get(stream) or "").encode(errors="surrogateescape")

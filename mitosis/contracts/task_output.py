"""How what a task has written stands in the detail of its result: as text, and exactly where text is not.

``stdout`` is UTF-8 in which anything else, and NUL, is U+FFFD. Where that differs from the bytes that
were kept, ``stdout_base64`` has those; so it is with ``stderr``.
"""

import base64
from collections.abc import Mapping


def exact_form(data: bytes, text: str) -> str | None:
    """Base64 of the bytes; None when the text says the same."""
    return None if text.encode() == data else base64.b64encode(data).decode()


def kept_bytes(detail: Mapping[str, object] | None, stream: str) -> bytes:
    """Return the kept part of ``stdout`` or ``stderr``, byte by byte."""
    found = detail or {}
    exact = found.get(f"{stream}_base64")
    if isinstance(exact, str):
        return base64.b64decode(exact)
    return str(found.get(stream) or "").encode(errors="surrogateescape")

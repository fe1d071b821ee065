"""Bodies of the hot routes: read with a limit, decoded by msgspec, errors that name the field.

Also the same limit for every other body, and what PostgreSQL cannot keep: bytes that are not UTF-8.
"""

import re
from typing import TypeVar

import msgspec
from fastapi import Request
from starlette.responses import Response

from api.admission import grow
from mitosis.contracts.checking import misfit
from mitosis.contracts.errors import InvalidRequest, TooLarge

MEGABYTE = 1_000_000
SUBMIT_LIMIT = 64 * MEGABYTE
REPORT_LIMIT = 64 * MEGABYTE
BODY_LIMIT = 2 * MEGABYTE
"""Of every route that names no limit of its own."""

T = TypeVar("T")

_NUL_ESCAPE = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
"""``\\u0000`` in JSON text, unless its backslash is itself escaped."""


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body.

    Raises:
        TooLarge: it is longer than ``limit`` bytes; read no further than that.
        Overloaded: it and all others at this moment are together too large.
    """
    told = request.headers.get("content-length", "")
    announced = int(told) if told.isdigit() else 0
    if announced > limit:
        raise too_large(limit)
    grow(request, announced)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        if not announced:
            grow(request, len(chunk))
        chunks.append(chunk)
    return b"".join(chunks)


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body may have {limit} bytes", limit_bytes=limit)


def decode(raw: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a body.

    Raises:
        InvalidRequest: naming the field, as ``tasks[3].priority``.
    """
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        message, path = misfit(error)
        raise InvalidRequest(message, field=path or "body") from None
    except UnicodeDecodeError:
        raise InvalidRequest("must be UTF-8", field=_not_utf8(raw)) from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply", field="body") from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error}", field="body") from None


def encode(answer: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def holds_nul(raw: bytes) -> bool:
    """Does this JSON text hold a NUL character, which PostgreSQL cannot keep?"""
    return b"\\u0000" in raw and _NUL_ESCAPE.search(raw) is not None


def without_nul(raw: bytes) -> bytes:
    """The JSON text with U+FFFD for every NUL character."""
    return _NUL_ESCAPE.sub(rb"\1\\ufffd", raw) if holds_nul(raw) else raw


def check_utf8(raw: bytes) -> None:
    """Check a body of which parts are kept without being decoded.

    Raises:
        InvalidRequest: naming the item, as ``reports[3]``.
    """
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("must be UTF-8", field=_not_utf8(raw)) from None


def _not_utf8(raw: bytes) -> str:
    """The item of the body's list that is not UTF-8, as ``tasks[3]``; else ``body``."""
    try:
        document = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        lists = {
            key: msgspec.json.decode(value, type=list[msgspec.Raw])
            for key, value in document.items()
            if bytes(value).startswith(b"[")
        }
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "body"
    for name, items in lists.items():
        for index, item in enumerate(items):
            if not _is_utf8(bytes(item)):
                return f"{name}[{index}]"
    return "body"


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True

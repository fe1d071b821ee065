"""Reads and decodes request bodies: media type, size limit, msgspec. Every error names the field.

Hot routes use the decoded value. Other bodies are checked here before FastAPI decodes them
(``api/limits.py``), so every route refuses the same text with the same message.
"""

import re
from typing import Any, TypeVar

import msgspec
from fastapi import Request
from starlette.responses import Response

from api.admission import grow
from api.json_text import holds_nul, nul_field, repeated_key, unfit
from mitosis.contracts.checking import refusal
from mitosis.contracts.errors import InvalidRequest, TooLarge, UnsupportedMediaType

MEGABYTE = 1_000_000
SUBMIT_LIMIT = 64 * MEGABYTE
REPORT_LIMIT = 64 * MEGABYTE
BODY_LIMIT = 2 * MEGABYTE
"""The limit of every route without its own."""

LOGIN_LIMIT = 10_000
"""Of a login, which is read without a token."""

T = TypeVar("T")

_JSON_TYPE = re.compile(r"application/(?:[\w.!#$&^-]+\+)?json", re.IGNORECASE)


async def read_body(request: Request, limit: int, *, any_type: bool = False) -> bytes:
    """Return the whole body; JSON, unless it may have ``any_type``.

    Raises:
        UnsupportedMediaType: its media type is not JSON.
        TooLarge: the body is longer than ``limit`` bytes; the rest is not read.
        Overloaded: the bodies of the same holder are too large together.
    """
    length = request.headers.get("content-length", "")
    announced = int(length) if length.isdigit() else 0
    if announced and not any_type:
        check_type(request)
    if announced > limit:
        raise too_large(limit)
    grow(request, announced)
    chunks, size = [], 0
    async for chunk in request.stream():
        if chunk and not size and not any_type:
            check_type(request)
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        if not announced:
            grow(request, len(chunk))
        chunks.append(chunk)
    return b"".join(chunks)


def check_type(request: Request) -> None:
    """Check the media type of a body that is not empty (RFC 9110, 8.3; RFC 6839, 3.1).

    Parameters are ignored: JSON is UTF-8 (RFC 8259, 8.1).

    Raises:
        UnsupportedMediaType: the media type is not JSON, or is missing.
    """
    media_type = request.headers.get("content-type", "")
    if not _JSON_TYPE.fullmatch(media_type.partition(";")[0].strip()):
        given = f"not {media_type[:100]}" if media_type else "and this body has no type"
        raise UnsupportedMediaType(
            f"send JSON as Content-Type: application/json, {given}", allowed=["application/json"]
        )


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body may have {limit} bytes", limit_bytes=limit)


def decode(raw: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a body. Refuse NUL characters, which PostgreSQL cannot store.

    Raises:
        InvalidRequest: names the field, as in ``tasks[3].priority``.
    """
    try:
        return _decode(raw, decoder)
    except RecursionError:  # the searches for a field stand deeper in the stack than the decoder
        raise too_deep() from None


def _decode(raw: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        body = decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise _refusal(raw, decoder.type, error) from None
    except _UNREADABLE as error:
        raise _unreadable(raw, error) from None
    if holds_nul(raw) and (place := nul_field(raw)) is not None:
        raise InvalidRequest("must not contain a NUL character", field=place)
    return body


def too_deep() -> InvalidRequest:
    return InvalidRequest("the body is nested too deeply", field="body")


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
"""What a decoder raises for a body that no type would accept."""


def _unreadable(raw: bytes, error: Exception) -> InvalidRequest:
    if isinstance(error, UnicodeDecodeError):
        return InvalidRequest("must be UTF-8", field=_not_utf8(raw))
    path, why = unfit(raw) or ("body", f"the body is not JSON: {error}")
    return InvalidRequest(why, field=path)


def _refusal(raw: bytes, kind: Any, error: msgspec.ValidationError) -> InvalidRequest:
    """Return the error for a body that a decoder refused, in JSON's terms.

    A decoder stops at the first wrong value. What follows may be no JSON at all.
    """
    try:
        document = msgspec.json.decode(raw)
    except _UNREADABLE as unreadable:
        return _unreadable(raw, unreadable)
    if (key := repeated_key(raw)) is not None:
        return InvalidRequest("this key is repeated", field=key)
    refused = refusal(document, kind, error, "", "json")
    refused.facts.setdefault("field", "body")
    return refused


def encode(answer: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def check_utf8(raw: bytes) -> None:
    """Check the encoding of a body whose parts are stored without being decoded.

    Raises:
        InvalidRequest: names the item, as in ``reports[3]``.
    """
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("must be UTF-8", field=_not_utf8(raw)) from None


def _not_utf8(raw: bytes) -> str:
    """Return the list item that is not UTF-8, as in ``tasks[3]``, or ``body``."""
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

"""Makes one call and compares its answer with the OpenAPI document."""

import json
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
PROBLEM = "application/problem+json"
STREAM = "text/event-stream"
STREAM_SECONDS, STREAM_BYTES = 0.3, 100_000
ANSWER_SECONDS = 30.0
NOT_RANDOM = ("authorization", "content-length", "transfer-encoding")
"""The caller's; and what makes it no HTTP request, which no route sees: uvicorn answers 400."""
EVENT_FIELDS = (b":", b"event:", b"data:", b"id:", b"retry:")


@dataclass
class Answer:
    """What came back: status, the JSON of a success, and what is wrong with it."""

    status: int
    document: Any = None
    wrong: list[str] = field(default_factory=list)


class Unsendable(Exception):
    """The case has no form in HTTP, for instance a header name with a space."""


class Calls:
    """Calls of one API over connections that are kept."""

    def __init__(self, url: str, planted: str) -> None:
        self._url, self._planted = url, planted
        self._session = requests.Session()
        self._session.trust_env = False

    def close(self) -> None:
        self._session.close()

    def make(self, case: Case[Any], token: str | None, content: bytes | None) -> Answer:
        """Send a case, with other bytes as its body if ``content`` is given.

        Raises:
            Unsendable: it cannot be sent.
        """
        try:
            return self._checked(case, self._send(case, token, content))
        except (requests.ReadTimeout, requests.ConnectionError) as error:
            return Answer(0, wrong=[f"no answer: {type(error).__name__}"])

    def _send(self, case: Case[Any], token: str | None, content: bytes | None) -> requests.Response:
        try:
            how = case.as_transport_kwargs(self._url)
            how["headers"] = {
                name: value
                for name, value in how["headers"].items()
                if name.lower() not in NOT_RANDOM
            }
            if token is not None:
                how["headers"]["Authorization"] = f"Bearer {token}"
            if content is not None:
                for name in ("json", "files"):
                    how.pop(name, None)
                how["data"] = content
                how["headers"]["Content-Type"] = "application/json"
            prepared = self._session.prepare_request(
                requests.Request(**{key: value for key, value in how.items() if key != "cookies"})
            )
        except (ValueError, TypeError, UnicodeError, requests.RequestException) as error:
            raise Unsendable from error
        return self._session.send(
            prepared, stream=True, timeout=(5, ANSWER_SECONDS), allow_redirects=False
        )

    def _checked(self, case: Case[Any], response: requests.Response) -> Answer:
        kind = response.headers.get("Content-Type", "").partition(";")[0]
        if kind == STREAM:
            return Answer(response.status_code, wrong=_read_stream(response))
        answer, content = Answer(response.status_code), response.content
        if self._planted.encode() in content and response.status_code >= 400:
            answer.wrong.append("a planted value in an error")
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as failures:
            answer.wrong += [
                f"{type(each).__name__}: {each.message}" for each in failures.exceptions
            ]
        if content and kind in (PROBLEM, "application/json"):
            try:
                answer.document = json.loads(content)
            except ValueError as error:
                answer.wrong.append(f"no JSON: {error}")
        if response.status_code >= 400 and kind != PROBLEM:
            answer.wrong.append(f"an error as {kind or 'nothing'}")
        return answer


def _read_stream(response: requests.Response) -> list[str]:
    """Read for a moment; what is wrong with the lines of the stream."""
    content = b""
    connection = getattr(response.raw, "_connection", None)
    try:
        if connection is not None and connection.sock is not None:
            connection.sock.settimeout(STREAM_SECONDS)
        while len(content) < STREAM_BYTES and (part := response.raw.read1(8192)):
            content += part
    except Exception as error:  # noqa: BLE001 - urllib3 wraps the timeout in several ways
        if "timed out" not in str(error):
            return [f"the stream broke: {error!r}"]
    finally:
        response.close()
    lines = content.split(b"\n")[:-1]
    return [
        f"no line of a stream: {line!r}"
        for line in lines
        if line and not line.startswith(EVENT_FIELDS)
    ]


def document_without_defaults(document: dict[str, Any]) -> Any:
    """Load the document; an answer that only its ``default`` covers is not documented."""
    for item in document["paths"].values():
        for operation in item.values():
            operation["responses"].pop("default", None)
    return schemathesis.openapi.from_dict(document)

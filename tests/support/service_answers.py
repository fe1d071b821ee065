"""A worker service's link to an API that gives answers in turn, without a server."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from mitosis.client.http_link import HttpAnswer, HttpRequest
from mitosis.client.service_api import ServiceApi
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.named_tasks import TaskName
from mitosis.contracts.worker_services import SupportedTask
from mitosis.execution.journal import Journal
from mitosis.execution.reporter import Reporter
from mitosis.worker_service.config import ServiceConfig
from mitosis.worker_service.contact import ServiceContact
from mitosis.worker_service.link import ServiceLink
from mitosis.worker_service.registration import Registration
from mitosis.worker_service.targets import Target

Answer = tuple[int, Any]
NAME = TaskName("images", "resize", "1.4.0")
NOT_REGISTERED: Answer = (409, {"code": "worker_not_registered", "detail": "over", "status": 409})
SUPERSEDED: Answer = (409, {"code": "superseded", "detail": "a later process", "status": 409})
UNAUTHENTICATED: Answer = (401, {"code": "unauthenticated", "detail": "expired", "status": 401})
AWAY: Answer = (503, {"code": "database_unavailable", "detail": "away", "status": 503})


def registered(number: int, incarnation: int | None = None, token: str = "own") -> Answer:  # noqa: S107 - of a test
    expires_at = datetime.now(UTC) + timedelta(days=30)
    body = {
        "worker_id": "w-1",
        "worker_uuid": str(UUID(int=1)),
        "registration_id": number,
        "incarnation": incarnation,
        "token": f"{token}-{number}",
        "expires_at": expires_at.isoformat(),
        "heartbeat_seconds": 30.0,
        "silence_seconds": 600.0,
    }
    return 201, body


def beat(*stop: Any, draining: bool = False) -> Answer:
    body = {
        "registration_id": 1,
        "draining": draining,
        "alive_until": datetime.now(UTC).isoformat(),
        "stop": list(stop),
    }
    return 200, body


def attempt(task: int = 11, *, group: int = 7, **fields: Any) -> dict[str, Any]:
    """An attempt in the answer to a claim."""
    return {
        "task_id": str(task_uuid(group, task)),
        "attempt": 1,
        "task_group_id": str(uuid4()),
        "task_group_name": "thumbnails",
        **NAME._asdict(),
        "spec": {"named_task": "images/resize@1.4.0"},
        "configuration": {},
        "configuration_version": 1,
        **fields,
    }


class Answers:
    """Gives the next answer of each path, and keeps what was sent and with which token."""

    def __init__(self, **answers: list[Answer]) -> None:
        """The names are the last steps of the paths; ``workers`` is the registration."""
        self._answers = answers
        self.sent: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.tokens: list[str] = []

    async def call(self, request: HttpRequest, **_: float | None) -> HttpAnswer:
        name = request.target.decode().rpartition("/")[2]
        self.sent[name].append(json.loads(request.body))
        headers = {key: value.decode() for key, value in request.headers}
        self.tokens.append(headers[b"Authorization"].removeprefix("Bearer "))
        status, body = self._answers[name].pop(0)
        if body.get("incarnation", 0) is None:
            body["incarnation"] = self.sent[name][-1]["incarnation"]
        kind = b"application/problem+json" if status >= 400 else b"application/json"
        return HttpAnswer(status, [(b"content-type", kind)], json.dumps(body).encode())

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class Parts:
    """The parts of a process that has no slots; ``running`` is what its session holds."""

    config: ServiceConfig
    api: ServiceApi
    link: ServiceLink
    registration: Registration
    contact: ServiceContact
    reporter: Reporter
    running: list[AttemptKey]


@asynccontextmanager
async def parts_of(answers: Answers, folder: Path, **fields: Any) -> AsyncIterator[Parts]:
    """A process of the service ``w-1`` that has not registered."""
    config = ServiceConfig(
        api_url="http://api.test",
        worker_id="w-1",
        token=fields.pop("token", "of a user"),
        state_dir=folder,
        folder=folder,
        **fields,
    )
    target = Target(SupportedTask.model_validate(NAME._asdict()), handler="shop:resize")
    api = ServiceApi(config.api_url, config.token or "", answers)
    running: list[AttemptKey] = []
    contact: ServiceContact
    link = ServiceLink(api, {NAME: target}, config.slots, folder, lambda: contact.look_now())  # noqa: PLW0108 - made below
    reporter = Reporter(link, Journal(folder / "journal"))
    registration = Registration(config, api, lambda: [target], link.unreported)
    contact = ServiceContact(api, registration, link)
    link.connect(registration, reporter, lambda: running)
    try:
        yield Parts(config, api, link, registration, contact, reporter, running)
    finally:
        reporter.close()

"""The API in the process of a test, over a real database and a Temporal that nobody runs."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2

from api.app import create_app
from api.app_state import AppState, Verb
from api.auth import Subject
from api.service import ApiOptions, admin_token, open_app_state
from mitosis.client.client import Client
from mitosis.contracts.agent_http import Hello, HelloAnswer
from mitosis.contracts.control import GroupView
from mitosis.contracts.errors import TemporalUnavailable
from mitosis.contracts.http import RegisterManager
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.store.store import StoreOptions
from mitosis.store.users.accounts import create_user
from tests.support.manager_api import ManagerApi

URL = "http://api.test"
NAMESPACE = "mitosis"


class NoTemporal:
    """A control plane whose Temporal does not run."""

    async def execute_verb(self, task_group_id: UUID, verb: Verb) -> GroupView:
        raise TemporalUnavailable

    async def check(self) -> None:
        raise TemporalUnavailable


@dataclass(frozen=True)
class Api:
    """An application with its state; clients of it need no socket."""

    app_state: AppState
    transport: httpx2.ASGITransport
    token: str
    """Of the admin."""

    def client(self, token: str | None = None) -> Client:
        return Client(
            URL,
            token or self.token,
            transport=self.transport,
            give_up_after=timedelta(seconds=30),
        )

    def manager(self, token: str) -> ManagerApi:
        return ManagerApi(URL, token, self.transport)

    async def user(self, name: str) -> str:
        """A new user's token."""
        user = await create_user(self.app_state.store, name, "secret words")
        subject = Subject("user", user.user_id, user.token_version)
        return self.app_state.signer.issue(subject, timedelta(hours=1)).token

    async def call(
        self, method: str, path: str, *, token: str | None = "", **how: Any
    ) -> httpx2.Response:
        """One raw call below ``/api/v1`` (``//`` first: of that path); token "" is the admin's.

        What is sent as ``content`` is said to be JSON, unless ``headers`` say otherwise.
        """
        headers = dict(how.pop("headers", {}))
        if "content" in how:
            headers.setdefault("Content-Type", "application/json")
        if token is not None:
            headers["Authorization"] = f"Bearer {token or self.token}"
        async with httpx2.AsyncClient(transport=self.transport, base_url=URL) as http:
            address = path[1:] if path.startswith("//") else "/api/v1" + path
            return await http.request(method, address, headers=headers, **how)


@asynccontextmanager
async def in_process_api(database: str, control: Any = None) -> AsyncIterator[Api]:
    """The API over ``database``, called without sockets."""
    options = ApiOptions(
        store=StoreOptions(database_url=database),
        signing_key=ed25519_private_key(),
        temporal_namespace=NAMESPACE,
    )
    async with open_app_state(options, control or NoTemporal()) as state:
        token = await admin_token(state)
        transport = httpx2.ASGITransport(create_app(state))
        yield Api(state, transport, token.token)


@asynccontextmanager
async def said_hello(
    api: Api, name: str = "host-1"
) -> AsyncIterator[tuple[ManagerApi, HelloAnswer]]:
    """A registered manager whose agent has said hello."""
    async with api.client() as client:
        registered = await client.register_manager(RegisterManager(name=name))
    async with api.manager(registered.token) as manager:
        yield manager, await manager.hello(hello())


def hello(incarnation: int = 1, machine_id: str = "machine-1", **changes: Any) -> Hello:
    return Hello(
        incarnation=incarnation,
        machine_id=machine_id,
        boot_id="boot-1",
        host_name="host-1.test",
        cores=(0, 1),
        agent_version="0",
        **changes,
    )


async def ready(api: Api) -> tuple[int, object]:
    """Status and body of ``/ready``."""
    answer = await api.call("GET", "//ready", token=None)
    return answer.status_code, answer.json()


@contextmanager
def problem(answer: httpx2.Response, status: int, code: str) -> Iterator[dict[str, Any]]:
    """The problem document of an answer, its standard members checked."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    document = answer.json()
    assert (answer.status_code, document["code"]) == (status, code), document
    assert document["status"] == status
    assert document["type"] == f"urn:mitosis:error:{code}"
    assert document["title"]
    assert document["detail"]
    yield document

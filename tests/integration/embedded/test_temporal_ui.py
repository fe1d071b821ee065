"""Temporal's own Web UI behind the API: a session opens it, a page of another origin cannot use it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from temporalio.client import Client, WorkflowExecutionStatus

from api.app import create_app
from api.server import serving
from api.service import ApiOptions, admin_token, open_app_state
from mitosis.embedded.data_folder import ed25519_private_key
from mitosis.embedded.temporal import EmbeddedTemporal
from mitosis.store.store import StoreOptions
from mitosis.store.users.accounts import ensure_admin
from mitosis.store.users.tokens import revoke_tokens
from tests.support.http_api import NAMESPACE, NoTemporal
from tests.support.waiting import wait_until_async

WORKFLOWS = "/temporal/api/v1/namespaces/mitosis/workflows"


@asynccontextmanager
async def browser(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=url, trust_env=False, timeout=20) as http:
        yield http


async def test_a_session_opens_the_ui_and_nothing_else_does(
    server: EmbeddedTemporal, database: str
) -> None:
    options = ApiOptions(
        store=StoreOptions(database_url=database),
        signing_key=ed25519_private_key(),
        temporal_namespace=NAMESPACE,
        temporal_ui_url=server.ui_url,
    )
    temporal = await Client.connect(server.address, namespace="mitosis")
    handle = await temporal.start_workflow("nobody-runs-it", id="kept", task_queue="none")
    async with (
        open_app_state(options, NoTemporal()) as state,
        serving(create_app(state), release=state.long_polls.release) as url,
        browser(url) as http,
        browser(url) as other,
    ):
        bearer = {"Authorization": f"Bearer {(await admin_token(state)).token}"}
        for headers in ({}, bearer, {"Cookie": "mitosis_ui=x"}):
            assert (await other.get("/temporal/", headers=headers)).status_code == 401
        link = (await http.post("/api/v1/temporal-ui", headers=bearer)).json()["path"]
        evil = {"Host": "evil.example:80"}
        assert (
            await other.get(link, headers=evil)
        ).status_code == 403  # and the code is not used up
        entered = await http.get(link)
        assert (entered.status_code, entered.headers["location"]) == (303, "/temporal/")
        assert (await other.get(link)).status_code == 401
        page = await http.get("/temporal/")
        assert page.status_code == 200
        assert "/temporal/_app" in page.text

        async def is_listed() -> bool:
            """Temporal's index follows a start after a moment."""
            found = (await http.get(WORKFLOWS)).json().get("executions", ())
            return [one["execution"]["workflowId"] for one in found] == ["kept"]

        await wait_until_async(is_listed)
        cancel = f"{WORKFLOWS}/kept/cancel"
        own = {"Origin": url, "X-CSRF-TOKEN": http.cookies.get("_csrf") or ""}
        for headers in (
            {},
            {**own, "Origin": "http://evil.example"},
            {**own, **evil, "Origin": "http://evil.example:80"},
            {**own, "Sec-Fetch-Site": "same-site"},
        ):
            answer = await http.post(cancel, headers=headers, json={"reason": "forged"})
            assert answer.status_code == 403, headers
        for headers in (evil, {"Sec-Fetch-Site": "cross-site"}):
            assert (await http.get(WORKFLOWS, headers=headers)).status_code == 403
        assert not [e async for e in handle.fetch_history_events() if "CANCEL" in str(e)]
        answer = await http.post(cancel, headers=own, json={"reason": "mine"})
        assert answer.status_code == 200, answer.text
        described = await handle.describe()
        assert (
            described.status is WorkflowExecutionStatus.RUNNING
        )  # nobody runs it; it was asked to
        admin = await ensure_admin(state.store, "admin")
        await revoke_tokens(state.store, "user", admin.user_id)
        assert (await http.get("/temporal/")).status_code == 401

"""A forced stop of a worker service whose handler cannot be stopped."""

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mitosis.client.http_link import HttpAnswer, HttpRequest
from mitosis.client.service_api import ServiceApi
from mitosis.contracts.errors import Unavailable
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.service_tasks import HeldAttempt
from mitosis.execution.reporter import Reporter
from mitosis.execution.run_folder import HostFolders
from mitosis.worker_service import coroutine_slots, coroutines, service
from mitosis.worker_service.config import ServiceConfig
from mitosis.worker_service.coroutines import CoroutineThread
from mitosis.worker_service.discovery import Discovery, Sources
from mitosis.worker_service.link import ServiceLink
from mitosis.worker_service.service import Service, process_id
from tests.support.service_answers import Answers, attempt, beat, registered
from tests.support.waiting import wait_until_async

MODULE = "tests.integration.worker_service.test_forced_stop"
INSIDE, OPEN = threading.Event(), threading.Event()


async def block() -> None:
    """Block the event loop of the handlers."""
    INSIDE.set()
    OPEN.wait(30)


class InOrder(Answers):
    """Notes every call among the other steps."""

    def __init__(self, steps: list[str], **answers: Any) -> None:
        super().__init__(**answers)
        self.steps = steps

    async def call(self, request: HttpRequest, **limits: float | None) -> HttpAnswer:
        self.steps.append(request.target.decode().rpartition("/")[2])
        return await super().call(request, **limits)


def note_closes(patch: pytest.MonkeyPatch, owner: type[Any], steps: list[str]) -> None:
    """Note each end of a call of its ``close``."""
    close = owner.close

    def call(self: Any) -> None:
        close(self)
        steps.append(f"{owner.__name__} closed")

    patch.setattr(owner, "close", call)


async def stopped_inside(
    folder: Path,
    patch: pytest.MonkeyPatch,
    answers: Answers,
    task: dict[str, Any],
    *,
    stop_now: bool,
) -> None:
    """Run a service, stop it while its handler blocks, and wait until it has ended.

    Raises:
        MitosisError: why it could not work.
    """
    INSIDE.clear()
    OPEN.clear()
    patch.setattr(service, "ServiceApi", lambda url, token, **_: ServiceApi(url, token, answers))
    patch.setattr(coroutines, "CLOSE_SECONDS", 0.01)
    named = f"{task['namespace']}/{task['name']}@{task['version']}={MODULE}:block"
    config = ServiceConfig(
        api_url="http://api.test",
        worker_id="w-1",
        token="of a user",
        state_dir=folder / "w-1",
        folder=folder,
        stop_now=stop_now,
        stop_grace=timedelta(0),
    )
    try:
        with HostFolders.lock(process_id(config.state_dir), config.state_dir) as folders:
            it = Service(config, Discovery(Sources(folder=str(folder), tasks=[named])), folders)
            running = asyncio.get_running_loop().create_task(it.run())
            await wait_until_async(INSIDE.is_set)
            it.stop()
            await asyncio.wait_for(running, 20)
    finally:
        OPEN.set()


@pytest.mark.parametrize("unreported", [False, True])
async def test_a_goodbye_is_the_last_step_of_a_process_whose_handler_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreported: bool
) -> None:
    """Another service may get the task from then on: what goes on ends with the process at once.

    While a report is postponed there is no goodbye, which would give its task to another service.
    """
    if unreported:
        left = HeldAttempt(task_id=task_uuid(7, 12), attempt=1)
        monkeypatch.setattr(ServiceLink, "unreported", lambda _: (left,))
    steps: list[str] = []
    for owner in (CoroutineThread, Reporter):
        note_closes(monkeypatch, owner, steps)
    task = attempt(11)
    answers = InOrder(
        steps,
        workers=[registered(1)],
        heartbeat=[beat()] * 500,
        claim=[(200, {"tasks": [task], "draining": False})],
        goodbye=[(204, {})],
    )
    monkeypatch.setattr(service, "KILL_MARGIN_SECONDS", 0.01)
    await stopped_inside(tmp_path, monkeypatch, answers, task, stop_now=True)
    goodbye = [] if unreported else ["goodbye"]
    assert steps[steps.index("CoroutineThread closed") :] == [
        "CoroutineThread closed",
        "Reporter closed",
        *goodbye,
    ]
    assert steps.count("CoroutineThread closed") == 1
    assert "report" not in answers.sent


async def test_a_handler_that_blocks_the_others_during_a_stop_is_why_the_process_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HANG_MARGIN_SECONDS", "BLOCKED_SECONDS"):
        monkeypatch.setattr(coroutine_slots, name, 0.02)
    spec = {"named_task": "images/resize@1.4.0", "timeout_seconds": 0.02, "kill_grace_seconds": 0}
    task = attempt(11, spec=spec)
    answers = Answers(
        workers=[registered(1)],
        heartbeat=[beat()] * 500,
        claim=[(200, {"tasks": [task], "draining": False})],
        report=[(200, {"standing": "current", "statuses": ["committed"]})],
        goodbye=[(204, {})],
    )
    with pytest.raises(Unavailable, match="has not ended in time blocks all others"):
        await stopped_inside(tmp_path, monkeypatch, answers, task, stop_now=False)
    assert [path for path in answers.sent if path in ("report", "goodbye")] == ["report", "goodbye"]
    assert "blocks all others" in answers.sent["goodbye"][0]["reason"]

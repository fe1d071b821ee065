"""`mitosis worker` and `mitosis handlers`, against the real API and PostgreSQL."""

from collections.abc import Iterator

import httpx2
import pytest

from mitosis.cli.exit import ExitStatus
from mitosis.client.sync import SyncClient
from mitosis.contracts.errors import NoWorkersAvailable
from mitosis.contracts.http import TaskGroupSpec
from mitosis.contracts.worker_services import RegisterWorker, SupportedTask
from tests.support.cli_stack import CliStack, cli_stack
from tests.support.command import Ran, mitosis
from tests.support.servers import LoopThread


@pytest.fixture
def stack(
    server_loop: LoopThread,
    database: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[CliStack]:
    data_dir = tmp_path_factory.mktemp("workers") / "data"
    with cli_stack(server_loop, database, data_dir) as running:
        running.use(monkeypatch)
        yield running


def done(*words: str) -> Ran:
    ran = mitosis(*words)
    assert ran.status == 0, ran.err
    return ran


def test_worker_services_and_named_tasks_on_the_command_line(stack: CliStack) -> None:
    assert "no worker services" in done("worker", "list").out
    assert "no gaps" in done("handlers", "gaps").out
    tasks = [
        SupportedTask(namespace="n", name=name, version="1", configuration={"size": 4})
        for name in ("crop", "resize")
    ]
    spec = RegisterWorker(worker_id="pay:1", supported_tasks=tuple(tasks), metadata={"pid": 7})
    with SyncClient(stack.url, stack.token) as client:
        made = client.register_worker(spec)
    assert done("worker", "list", "--quiet").out == "pay:1\n"
    assert done("worker", "list", "--json").json[0]["health"] == "registered"
    assert done("handlers", "gaps", "--quiet").out == "n/crop@1\nn/resize@1\n"
    heartbeat(stack, made.token, made.incarnation)
    assert "no gaps" in done("handlers", "gaps").out
    listed = done("worker", "coverage", "--single", "--json").json
    assert [one["worker_ids"] for one in listed] == [["pay:1"], ["pay:1"]]
    assert "pay:1" in done("handlers", "list").out
    shown = done("worker", "show", "pay:1").out
    for text in ("healthy", '{"pid": 7}', "n/resize@1 for admin, priority 100", '{"size": 4}'):
        assert text in shown
    assert made.token not in shown
    drained = done("worker", "drain", "pay:1", "--reason", "disks").out
    assert "drained because" in drained
    assert done("handlers", "gaps", "--quiet").out == "n/crop@1\nn/resize@1\n"
    assert "drained" not in done("worker", "resume", "pay:1").out
    with SyncClient(stack.url, stack.token) as client:
        client.register_worker(spec)
        assert [one.worker_id for one in client.workers()] == ["pay:1"]
    history = done("worker", "history", "pay:1", "--json").json
    assert [one["failure_reason"] for one in history] == [None, "new_incarnation"]
    assert "new_incarnation" in done("worker", "history", "pay:1").out


def test_errors_name_what_was_typed(stack: CliStack) -> None:
    missing = mitosis("worker", "show", "none")
    assert (missing.status, "no such worker service: none" in missing.err) == (
        ExitStatus.NOT_FOUND,
        True,
    )
    wrong = mitosis("worker", "drain", "a/b")
    assert (wrong.status, "WORKER" in wrong.err) == (ExitStatus.INVALID, True)


def heartbeat(stack: CliStack, token: str, incarnation: int) -> None:
    answer = httpx2.post(
        f"{stack.url}/api/v1/workers/heartbeat",
        json={"incarnation": incarnation},
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.status_code == 200, answer.text


def test_named_tasks_are_submitted_with_latest_and_a_required_worker(stack: CliStack) -> None:
    tasks = [SupportedTask(namespace="n", name="crop", version=one) for one in ("1.9", "1.10")]
    with SyncClient(stack.url, stack.token) as client:
        client.create_group(TaskGroupSpec(name="work", kind="service"))
        made = client.register_worker(
            RegisterWorker(worker_id="pay:1", supported_tasks=tuple(tasks))
        )
        submit = ("group", "submit", "work", "--named-task", "n/crop@latest")
        refused = mitosis(*submit, "--require-worker")
        assert refused.status == ExitStatus.CONFLICT
        assert "pay:1 is registered" in refused.err
        heartbeat(stack, made.token, made.incarnation)
        said = done(*submit, "--require-worker", "--arguments", '{"file": "a"}').out
        assert "n/crop@1.10" in said
        (task,) = client.tasks("work")
        assert task.spec == {"named_task": "n/crop@1.10", "arguments": {"file": "a"}}
        assert done(*submit, "--json").json["named_tasks"] == ["n/crop@1.10"]
        spec = TaskGroupSpec(name="more", kind="service")
        with client.task_group(spec, on_exit="leave") as group:
            wanted = [{"named_task": "n/crop@3"}]
            with pytest.raises(NoWorkersAvailable):
                group.submit_tasks(wanted, require_worker=True)
        assert list(client.tasks("more")) == []

"""One executor in the thread of a worker service, with an attempt in its hands, for tests of its contract."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.ids import task_uuid
from mitosis.contracts.named_tasks import TaskName
from mitosis.contracts.run_spec import RunSpec
from mitosis.contracts.service_tasks import NamedTaskAttempt
from mitosis.contracts.worker_services import SupportedTask
from mitosis.executors.contract import CheckpointRefused, ExecutorKind, Progress, ServiceFacts
from mitosis.worker.report import Ended
from mitosis.worker_service.attempts import claimed
from mitosis.worker_service.executor_thread import ExecutorRun, ExecutorThread
from mitosis.worker_service.targets import Target

NAME = TaskName("images", "resize", "1")


@dataclass
class KeptReports:
    """What attempts have said, in order."""

    progress_of: list[Progress] = field(default_factory=list)
    checkpoints: list[Any] = field(default_factory=list)
    refuses: bool = False

    def of(self, _key: AttemptKey) -> "KeptReports":
        return self

    def forget(self, _key: AttemptKey) -> None: ...

    def progress(self, progress: Progress) -> None:
        self.progress_of.append(progress)

    async def checkpoint(self, value: Any) -> None:
        if self.refuses:
            raise CheckpointRefused("the task has ended, or is executed elsewhere")
        await asyncio.sleep(0)
        self.checkpoints.append(value)


@dataclass
class Attempt:
    """A running attempt."""

    run: ExecutorRun
    over: threading.Event
    how: list[Ended]

    async def ended(self, within: float = 60.0) -> Ended:
        assert await asyncio.to_thread(self.over.wait, within), "the attempt has not ended"
        return self.how[0]


@dataclass
class Stage:
    """Starts attempts of one target."""

    thread: ExecutorThread
    kept: KeptReports
    target: Target
    folder: Path
    kinds: Any
    daemon: Any = None
    """The container engine, if there is one."""
    _attempts: int = 0

    def start(self, arguments: Any = None, *, checkpoint: Any = None, **spec: Any) -> Attempt:
        self._attempts += 1
        key = AttemptKey(7, self._attempts)
        submitted = {"named_task": "images/resize@1", "arguments": arguments or {}, **spec}
        attempt = NamedTaskAttempt(
            task_id=task_uuid(3, key.task_id),
            attempt=key.attempt,
            task_group_id=task_uuid(3, 1),
            task_group_name="work",
            namespace=NAME.namespace,
            name=NAME.name,
            version=NAME.version,
            spec=Raw(json.dumps(submitted, separators=(",", ":")).encode()),
            configuration=Raw(json.dumps(self.target.supported.configuration).encode()),
            configuration_version=4,
            checkpoint=checkpoint,
        )
        task = claimed(attempt, key, {NAME: self.target}, str(self.folder))
        over, how = threading.Event(), list[Ended]()

        def ended(end: Ended) -> None:
            how.append(end)
            over.set()

        run = self.thread.run(key, msgspec.json.decode(task.spec, type=RunSpec), ended)
        assert isinstance(run, ExecutorRun)
        return Attempt(run, over, how)


@contextmanager
def stage(
    folder: Path,
    name: str,
    kind: ExecutorKind,
    configuration: Mapping[str, Any],
    **how: Any,
) -> Iterator[Stage]:
    """Serve an executor of this kind; ``how`` has the ``command`` or ``handler`` of the task."""
    fields = {**NAME._asdict(), "configuration": dict(configuration)}
    target = Target(SupportedTask.model_validate(fields), executor=name, **how)
    kind.check(configuration)
    service = ServiceFacts(
        service="service-of-the-test",
        folder=str(folder),
        variables={"MITOSIS_MANAGER_ID": f"test-{os.getpid()}"},
        python_path=(str(folder),),
    )
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    kept: Any = KeptReports()
    thread = ExecutorThread({name: kind}, {NAME: target}, kept, service, scratch)
    thread.start(lambda: None)
    try:
        asyncio.run_coroutine_threadsafe(kind.start(service), thread.loop).result(60)
        yield Stage(thread, kept, target, folder, {name: kind})
    finally:
        thread.close()

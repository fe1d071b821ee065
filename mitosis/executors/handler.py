"""The executor ``handler``: a Python function, called in a process of its own."""

import os
import sys

import msgspec

from mitosis.executors.command import LocalExecutor, LocalKind
from mitosis.executors.contract import ExecutionContext, ExecutorTask
from mitosis.executors.handler_call import HandlerEnd
from mitosis.worker.report import Ended, encode_result


class HandlerExecutor(LocalExecutor):
    """One call of the function."""

    kind = "handler"

    async def execute(self, task: ExecutorTask, context: ExecutionContext) -> Ended:
        argv = (sys.executable, "-P", "-m", "mitosis.executors.handler_call", task.handler or "")
        path = os.pathsep.join([*self._service.python_path, os.environ.get("PYTHONPATH", "")])
        environment = {
            **self._child.environment(task, context),
            "PYTHONPATH": path.rstrip(os.pathsep),
            "MITOSIS_TASK_ID": str(task.key.task_id),
            "MITOSIS_TASK_ATTEMPT": str(task.key.attempt),
            "MITOSIS_GROUP_NAME": "",
        }
        ended = await self._child.run(argv, task, context, environment)
        if ended.kind is None and ended.result is not None:
            _conclude(ended)
        return ended


def _conclude(ended: Ended) -> None:
    """Put what the process wrote into its end."""
    end = msgspec.json.decode(ended.result or b"", type=HandlerEnd)
    ended.kind, ended.message, ended.traceback = end.kind, end.message, end.traceback
    ended.exit_code = end.exit_code
    ended.result = encode_result(end.result) if end.kind is None else None


class HandlerKind(LocalKind):
    """Makes executors of the kind ``handler``."""

    def make(self) -> HandlerExecutor:
        return HandlerExecutor(self.service)

"""What a worker process executes. Workers import this: msgspec only."""

import msgspec

from mitosis.contracts.task import TaskSpec


class RunSpec(TaskSpec, omit_defaults=True, kw_only=True):
    """A command or handler, with what only the owner of the worker adds."""

    variables: dict[str, str] = msgspec.field(default_factory=dict)
    """MITOSIS_* variables of this attempt, beside those of every task and in their place."""
    input: str | None = None
    """Of a command: the JSON that it reads from standard input. It then writes its result as JSON to standard
    output. None: it reads nothing, and its output is no result."""

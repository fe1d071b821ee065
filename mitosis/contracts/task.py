"""Tasks, as users submit them and workers run them. Imports only msgspec, because workers import this.

A task is a command (``command`` is an argv, never a shell line), a Python handler (``handler`` is
``module:function``, called with ``arguments``), or a named task that a worker service executes.
"""

import base64
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mitosis.contracts.checking import checked, encoded
from mitosis.contracts.errors import InvalidRequest, TooLarge
from mitosis.contracts.json_depth import MAX_DEPTH, is_deeper, too_deep_text
from mitosis.contracts.named_tasks import parse_task_name
from mitosis.contracts.plain_text import unprintable
from mitosis.contracts.variables import PREFIX

MAX_TASKS_PER_SUBMIT = 10_000
MAX_SPEC_BYTES = 1_000_000
MAX_DEDUP_KEY_BYTES = 200
MAX_ATTEMPTS = 100
DEFAULT_KILL_GRACE_SECONDS = 10.0
MAX_DEPENDENCIES = 200_000
"""Of all tasks of a submit together."""
MAX_TASK_SECONDS = 315_360_000
"""Ten years, as for every duration, so that adding it to a time does not overflow."""

Priority = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Seconds = Annotated[float, Meta(gt=0, le=MAX_TASK_SECONDS)]
Retries = Annotated[int, Meta(ge=0, le=MAX_ATTEMPTS - 1)]
"""Number of retries: one less than the attempts."""
TaskNumber = Annotated[int, Meta(ge=1, le=2**63 - 1)]
PlaceInSubmission = Annotated[
    list[Annotated[int, Meta(ge=0, le=2**31 - 1)]], Meta(min_length=2, max_length=2)
]
"""``[part, index]``. No tuple: msgspec 0.22 frees one too often when it converts a tuple of fixed length."""
Dependency = TaskNumber | PlaceInSubmission
"""The number of a task, or its place within the submission of the same idempotency key."""
Terminations = Annotated[int, Meta(ge=1, le=1000)]
RetryDelay = Annotated[float, Meta(ge=0, le=2_592_000)]


class RetryFields(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """The fields of a :class:`RetryPolicy`."""

    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] = 1
    """The task fails after this many failed attempts; crashes and lost hosts count apart. 1 = no retry."""
    exit_codes: tuple[int, ...] | None = None
    """Of commands that end by themselves, retry only these exit codes; None = any, and handler errors too.
    A timeout and a missing progress (stuck) are retried with both."""
    delay_seconds: RetryDelay = 0.0
    """Pause before the next attempt; doubled for each further failure. 0: none before the second attempt,
    then 0.1 s, doubled up to 5 min."""
    max_terminations: Terminations | None = None
    """The task ends after this many deaths by SIGTERM or SIGINT in a row, which count as no failed attempt;
    None: as set for the deployment, 20 by default."""


class RetryPolicy(RetryFields, frozen=True):
    """When a failed task is retried. Deaths by signal follow a table of their own."""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidRequest: names the field and what would be right.
        """
        checked(self, RetryFields)


class TaskSpec(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What to run. Exactly one of ``command``, ``handler`` and ``named_task`` is given."""

    command: list[str] | None = None
    """argv; element 0 is looked up in PATH of the task's environment."""
    command_encoding: Literal["text", "base64"] = "text"
    """``base64``: the elements are bytes that need not be UTF-8, each in base64."""
    handler: str | None = None
    """``module:function`` (dotted attribute paths allowed)."""
    named_task: str | None = None
    """``NAMESPACE/NAME@VERSION``, in a group of the kind ``service``: a worker service executes it.
    The version ``latest`` is replaced at the submit by the highest one that a service supports then."""
    arguments: dict[str, Any] | list[Any] | None = None
    """Keyword or positional JSON arguments of the handler; of a named task any JSON object or list."""
    environment: dict[str, str] = {}
    """Added to the worker's environment. May not name a MITOSIS_ variable."""
    working_directory: str | None = None
    """Absolute folder on the host; None = the worker's scratch folder."""
    timeout_seconds: Seconds | None = None
    """SIGTERM to the process group after this long; None = no limit."""
    kill_grace_seconds: Annotated[float, Meta(ge=0, le=MAX_TASK_SECONDS)] = (
        DEFAULT_KILL_GRACE_SECONDS
    )
    """From SIGTERM to SIGKILL, after a timeout or a cancellation without its own grace."""
    stream_output: bool = False
    """Of a command: send all that it writes to a reader of whole output, which it waits for. Without a
    reader only the tails are kept."""


class SubmittedTask(TaskSpec, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One task as submitted: what to run, and how to queue it. It is stored as the task's spec."""

    priority: Priority = 0
    """Higher first, within the group."""
    dedup_key: str | None = None
    """No task is created while an unfinished task of the group has the same key."""
    labels: list[str] = []
    retry: RetryPolicy = RetryPolicy()
    depends_on: list[Dependency] = []
    """It starts when all of these have succeeded; when one ends otherwise, it is cancelled. They may be in
    any task group of the same user group."""


class TaskSubmission(SubmittedTask, omit_defaults=True, kw_only=True):
    """One task as programs write it; the constructor checks its fields.

    Decoders make :class:`SubmittedTask` instead, and check the types while they read.
    """

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            InvalidRequest: names the field and what would be right.
        """
        checked(self, SubmittedTask)
        check_submission(self, "")


def submission(fields: Mapping[str, Any], field: str = "") -> SubmittedTask:
    """Return the task with these fields, checked.

    Args:
        fields: the fields of :class:`SubmittedTask`, by name.
        field: the path of the task, for the error.

    Raises:
        InvalidRequest: names the field and what would be right.
    """
    task = checked(dict(fields), SubmittedTask, field)
    check_submission(task, field)
    return task


def check_submission(task: SubmittedTask, field: str) -> None:
    """Check the rules that types cannot express; ``field`` is the path for the error, "" for none.

    Raises:
        InvalidRequest: names the field and what would be right.
    """
    _check_what_to_run(task, field)
    check_environment(task.environment, field)
    check_working_directory(task.working_directory, field)
    for index, label in enumerate(task.labels):
        if (char := unprintable(label)) is not None:
            raise InvalidRequest(
                f"must not contain control or invisible characters such as U+{ord(char):04X}",
                field=below(field, f"labels[{index}]"),
            )
    if task.dedup_key is not None and not 1 <= len(task.dedup_key.encode()) <= MAX_DEDUP_KEY_BYTES:
        raise InvalidRequest(
            f"must have 1 to {MAX_DEDUP_KEY_BYTES} bytes", field=below(field, "dedup_key")
        )
    if task.dedup_key is not None and "\0" in task.dedup_key:
        raise InvalidRequest("must not contain a NUL byte", field=below(field, "dedup_key"))


def encode_submission(task: SubmittedTask, field: str) -> bytes:
    """Return the task as JSON, as it is sent and stored.

    Raises:
        InvalidRequest: JSON cannot represent a field, or the arguments are nested too deeply.
        TooLarge: the JSON has more than :data:`MAX_SPEC_BYTES`.
    """
    spec = encoded(task, field)
    if task.arguments is not None and is_deeper(spec, 1 + MAX_DEPTH):
        raise InvalidRequest(too_deep_text(), field=below(field, "arguments"))
    if len(spec) > MAX_SPEC_BYTES:
        raise TooLarge(
            f"a task may have {MAX_SPEC_BYTES} bytes as JSON and this one has {len(spec)}; put"
            " the data into a file or an object and pass its name",
            field=field or None,
            limit_bytes=MAX_SPEC_BYTES,
        )
    return spec


def _check_what_to_run(task: SubmittedTask, field: str) -> None:
    if [task.command, task.handler, task.named_task].count(None) != 2:
        raise InvalidRequest(
            "give exactly one of command and handler, or a named_task", field=field or None
        )
    if task.named_task is not None:
        parse_task_name(task.named_task, below(field, "named_task"), latest=True)
    if task.handler is not None:
        _check_handler(task.handler, field)
    if task.command is not None:
        _check_command(task, field)
    if task.command is None and task.stream_output:
        raise InvalidRequest("only a command can stream", field=below(field, "stream_output"))
    if task.command is None and task.command_encoding != "text":
        raise InvalidRequest("there is no command", field=below(field, "command_encoding"))
    if task.command is not None and task.arguments is not None:
        raise InvalidRequest(
            "arguments belong to a handler; put them into command", field=below(field, "arguments")
        )


def command_argv(spec: TaskSpec) -> list[str]:
    """Return the argv as ``os.fsdecode`` gives it, so that any byte reaches ``execve``.

    Raises:
        ValueError: an element that should be base64 is not.
    """
    words = spec.command or []
    if spec.command_encoding == "text":
        return words
    return [os.fsdecode(base64.b64decode(word, validate=True)) for word in words]


def shown_argv(spec: Mapping[str, object]) -> list[str]:
    """Return the argv of a task as the API shows it, whose environment may lack its values.

    Raises:
        ValueError: as for :func:`command_argv`; or the spec is of another version.
    """
    rest = {name: value for name, value in spec.items() if name != "environment"}
    return command_argv(msgspec.convert(rest, TaskSpec))


def command_fields(argv: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a spec for an argv as ``os.fsdecode`` gives it; inverts :func:`command_argv`."""
    if all(word.isascii() or _is_text(word) for word in argv):
        return {"command": list(argv)}
    words = [base64.b64encode(os.fsencode(word)).decode() for word in argv]
    return {"command": words, "command_encoding": "base64"}


def _is_text(word: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def _check_command(task: SubmittedTask, field: str) -> None:
    try:
        command = command_argv(task)
    except ValueError:
        raise InvalidRequest(
            "every element must be base64", field=below(field, "command")
        ) from None
    if not command or not command[0]:
        raise InvalidRequest(
            'must name a program, as in ["gzip", "-k", "file"]', field=below(field, "command")
        )
    for index, word in enumerate(command):
        if "\0" in word:
            raise InvalidRequest(
                "must not contain a NUL byte", field=below(field, f"command[{index}]")
            )


def _check_handler(handler: str, field: str) -> None:
    module, colon, function = handler.partition(":")
    names = [*module.split("."), *function.split(".")]
    if not colon or not all(name.isidentifier() for name in names):
        raise InvalidRequest(
            "must be module:function, as in package.module:function", field=below(field, "handler")
        )


def check_working_directory(folder: str | None, field: str) -> None:
    """Check that the path is absolute; a host has no folder that relative paths could refer to.

    Raises:
        InvalidRequest: the path is not absolute.
    """
    if folder is not None and not folder.startswith("/"):
        raise InvalidRequest("must be an absolute path", field=below(field, "working_directory"))


def below(field: str, path: str) -> str:
    """Return the path of a field within another; "" is the root."""
    return f"{field}.{path}" if field else path


def is_variable(name: str, value: str) -> bool:
    """Return whether this is valid as an environment variable. Source: environ(7)."""
    return bool(name) and "=" not in name and "\0" not in name + value


def check_environment(environment: dict[str, str], field: str) -> None:
    """Check that the variables are valid and their names not reserved for Mitosis.

    Raises:
        InvalidRequest: names the variable.
    """
    for name, value in environment.items():
        path = below(field, f"environment.{name}")
        if not is_variable(name, value):
            raise InvalidRequest(
                "must be a valid environment variable: a name without =, no NUL", field=path
            )
        if name.startswith(PREFIX):
            raise InvalidRequest("names that start with MITOSIS_ are set by Mitosis", field=path)

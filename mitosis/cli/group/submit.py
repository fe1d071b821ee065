"""`mitosis group submit`: submits tasks from the command line, a file of commands, or JSON.

All tasks are read and checked before the first one is sent, so an error in line 9,000 of a file submits
nothing.
"""

import json
import os
import uuid
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from mitosis.cli.arguments import GroupArgument
from mitosis.cli.context import Cli
from mitosis.cli.group.submit_options import TaskOptions, TaskSources
from mitosis.cli.input_files import read_bytes, read_text
from mitosis.cli.rendering import Item
from mitosis.cli.task.options import (
    OPTION_OF_FIELD,
    checked_fields,
    checked_task,
    retry_policy,
    variables,
)
from mitosis.cli.word_splitting import words_of
from mitosis.contracts.bounded_files import MOST_TASKS_BYTES
from mitosis.contracts.checking import refusal
from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.task import (
    SubmittedTask,
    check_submission,
    command_fields,
    encode_submission,
)

T = TypeVar("T")


def submit(
    cli: Cli,
    group: GroupArgument,
    sources: TaskSources,
    options: TaskOptions,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Submitting again with the same key creates nothing twice.")
    ] = None,
    require_worker: Annotated[
        bool,
        typer.Option(
            "--require-worker", help="Refuse named tasks that no worker service can execute now."
        ),
    ] = False,
) -> None:
    """Submit tasks to a task group.

    Options that describe a task apply to every task of this call; with --json-file they are in the file.
    With --quiet, the numbers of the tasks are printed, one a line.
    """
    from mitosis.cli.validation import named, seconds
    from mitosis.client.submitting import Part

    fields = checked_fields(
        priority=options.priority,
        timeout_seconds=seconds(options.timeout, "--timeout"),
        kill_grace_seconds=seconds(options.kill_grace, "--kill-grace"),
        environment=variables(options.env or [], os.environ),
        working_directory=options.cwd,
        dedup_key=options.dedup_key,
        retry=retry_policy(options.retries),
        labels=options.label or None,
        depends_on=options.after or None,
    )
    tasks = tasks_from(sources, fields)
    with named(OPTION_OF_FIELD), cli.client() as client:
        if sources.named_task:
            key = idempotency_key or uuid.uuid4().hex
            part = Part(tasks=tasks, idempotency_key=key, number=0, require_worker=require_worker)
            answer = client.submit_part(group, part)
            ids, exact = answer.task_ids, answer.named_tasks
        else:
            ids = client.submit(
                group, tasks, idempotency_key=idempotency_key, require_worker=require_worker
            )
            exact = []
    data: dict[str, Any] = {"task_ids": ids} | ({"named_tasks": exact} if exact else {})
    text = _count_text(ids) + (f", {exact[0]}" if exact and exact[0] else "")
    cli.output.item(Item(data, [("submitted", text)], "\n".join(map(str, ids))))


def tasks_from(sources: TaskSources, options: dict[str, Any]) -> list[msgspec.Raw]:
    """Return the tasks of the one source that is given, checked and encoded.

    Raises:
        InvalidRequest: there is no source or more than one, or a task is invalid; names the place.
    """
    given = [
        name
        for name, value in (
            ("-- COMMAND", sources.argv),
            ("--handler", sources.handler),
            ("--named-task", sources.named_task),
            ("--command-file", sources.command_file),
            ("--json-file", sources.json_file),
        )
        if value
    ]
    if len(given) != 1:
        raise InvalidRequest(
            "give one of: -- COMMAND …, --handler, --named-task, --command-file, --json-file"
            + (f"; given are {' and '.join(given)}" if given else "")
        )
    if sources.arguments is not None and sources.handler is None and sources.named_task is None:
        raise InvalidRequest("needs --handler or --named-task", option="--arguments")
    if sources.json_file is not None:
        return _from_json_file(sources.json_file, options)
    if sources.command_file is not None:
        return _from_command_file(sources.command_file, options)
    return [checked_task({**_what_to_run(sources), **options}, "")]


def _what_to_run(sources: TaskSources) -> dict[str, Any]:
    if sources.handler:
        return {"handler": sources.handler, "arguments": _arguments(sources.arguments)}
    if sources.named_task:
        return {"named_task": sources.named_task, "arguments": _arguments(sources.arguments)}
    return command_fields(sources.argv or [])


def _from_command_file(path: Path, options: dict[str, Any]) -> list[msgspec.Raw]:
    tasks = []
    for number, line in enumerate(
        read_text(path, "--command-file", MOST_TASKS_BYTES).split("\n"), start=1
    ):
        try:
            words = words_of(line)
        except ValueError as error:
            raise InvalidRequest(
                f"line {number} of {path}: {error}", option="--command-file"
            ) from None
        if words:
            where = f"line {number} of {path}: "
            tasks.append(checked_task({"command": words, **options}, where))
    if not tasks:
        raise InvalidRequest(f"{path} contains no command", option="--command-file")
    return tasks


def _from_json_file(path: Path, options: dict[str, Any]) -> list[msgspec.Raw]:
    if options:
        names = ", ".join(sorted(OPTION_OF_FIELD[field] for field in options))
        raise InvalidRequest(
            f"{names} cannot be combined with --json-file; write the values into the file"
        )
    content = read_bytes(path, "--json-file", MOST_TASKS_BYTES).strip()
    try:
        tasks = _decoded(content, SubmittedTask)
    except _UNDECODABLE as error:
        raise InvalidRequest(
            f"{path}{_json_problem(content, error)}", option="--json-file"
        ) from None
    if not tasks:
        raise InvalidRequest(f"{path} contains no task", option="--json-file")
    for index, task in enumerate(tasks):
        check_submission(task, f"tasks[{index}]")
    return [
        msgspec.Raw(encode_submission(task, f"tasks[{index}]")) for index, task in enumerate(tasks)
    ]


_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _json_problem(content: bytes, error: Exception) -> str:
    """Say what is wrong with the text: it is no JSON, or names the field that was refused."""
    try:
        plain = _decoded(content, Any)
    except _UNDECODABLE as unreadable:
        return f" is neither a JSON array nor one JSON object per line: {unreadable}"
    return f": {refusal(plain, list[SubmittedTask], error, 'tasks', 'json')}"


def _decoded(content: bytes, kind: type[T]) -> list[T]:
    """Decode a JSON array, or one JSON object per line."""
    if content.startswith(b"["):
        return msgspec.json.decode(content, type=list[kind])  # type: ignore[valid-type]
    return msgspec.json.Decoder(kind).decode_lines(content)


def _arguments(text: str | None) -> Any:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"is invalid JSON at character {error.pos + 1}: {error.msg}", option="--arguments"
        ) from None
    if not isinstance(value, dict | list):
        raise InvalidRequest(
            'must be a JSON object or array, as in {"x": 1} or [1, 2]', option="--arguments"
        )
    return value


def _count_text(ids: list[int]) -> str:
    if len(ids) == 1:
        return f"task {ids[0]}"
    return f"{len(ids)} tasks: {ids[0]} to {ids[-1]}"

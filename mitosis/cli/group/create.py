"""`mitosis group create`: options and a JSON file put together into one :class:`TaskGroupSpec`."""

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mitosis.cli.context import Cli
from mitosis.cli.group.create_options import (
    AutoCloseOption,
    CancelGraceOption,
    CoresOption,
    CoresPerWorkerOption,
    DeadlineOption,
    GroupOption,
    HandlerModuleOption,
    HostLostAfterOption,
    LabelOption,
    ManagerOption,
    MaxManagersOption,
    NameOption,
    PinOption,
    PriorityOption,
    PythonPathOption,
    SetupFileOption,
    SetupOption,
    SpecOption,
    TagMatchOption,
    TagOption,
    TeardownFileOption,
    TeardownOption,
    WorkersOption,
)
from mitosis.cli.group.view import group_item
from mitosis.cli.input_files import read_json_object
from mitosis.contracts.errors import InvalidRequest

OPTION_OF_FIELD = {
    "name": "NAME",
    "group_name": "--group",
    "tags": "--tag",
    "labels": "--label",
    "tag_match": "--tag-match",
    "priority": "--priority",
    "worker_allocation_plan.worker_count": "--workers",
    "worker_allocation_plan.cpu_binding.strategy": "--pin",
    "worker_allocation_plan.cpu_binding.cores": "--cores",
    "worker_allocation_plan.cpu_binding.cores_per_worker": "--cores-per-worker",
    "worker_allocation_plan.handler_modules": "--handler-module",
    "worker_allocation_plan.python_path": "--python-path",
    "environment_setup_hook": "--setup",
    "environment_teardown_hook": "--teardown",
    "auto_close_timeout": "--auto-close",
    "close_deadline": "--deadline",
    "max_managers": "--max-managers",
    "manager_ids": "--manager",
    "cancel_grace_seconds": "--cancel-grace",
    "host_lost_after": "--host-lost-after",
}
"""Field of the API -> option of this command, to name the option when the API refuses a field."""

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MAX_CORE = 100_000


def create(
    cli: Cli,
    name: NameOption = None,
    group: GroupOption = None,
    tag: TagOption = None,
    label: LabelOption = None,
    tag_match: TagMatchOption = None,
    priority: PriorityOption = None,
    workers: WorkersOption = None,
    pin: PinOption = None,
    cores: CoresOption = None,
    cores_per_worker: CoresPerWorkerOption = None,
    handler_module: HandlerModuleOption = None,
    python_path: PythonPathOption = None,
    setup: SetupOption = None,
    setup_file: SetupFileOption = None,
    teardown: TeardownOption = None,
    teardown_file: TeardownFileOption = None,
    auto_close: AutoCloseOption = None,
    deadline: DeadlineOption = None,
    max_managers: MaxManagersOption = None,
    manager: ManagerOption = None,
    cancel_grace: CancelGraceOption = None,
    host_lost_after: HostLostAfterOption = None,
    spec: SpecOption = None,
) -> None:
    """Create a task group.

    It stays open for tasks until it is closed: by `mitosis group close`, or by --auto-close.
    """
    from mitosis.cli.validation import positive_duration, seconds

    lasting = positive_duration(deadline, "--deadline")
    given: dict[str, Any] = {
        "name": name,
        "group_name": group,
        "tags": tag,
        "labels": label,
        "tag_match": tag_match,
        "priority": priority,
        "worker_allocation_plan": present(
            {
                "worker_count": workers,
                "handler_modules": handler_module,
                "python_path": python_path,
                "cpu_binding": cpu_binding(pin, cores, cores_per_worker),
            }
        ),
        "environment_setup_hook": hook(setup, setup_file, "--setup"),
        "environment_teardown_hook": hook(teardown, teardown_file, "--teardown"),
        "auto_close_timeout": auto_close,
        "close_deadline": None if lasting is None else datetime.now(UTC) + lasting,
        "max_managers": max_managers,
        "assignment_method": "user_specified" if manager else None,
        "manager_ids": manager,
        "cancel_grace_seconds": seconds(cancel_grace, "--cancel-grace"),
        "host_lost_after": host_lost_after,
    }
    _create(cli, merged(read_json_object(spec, "--spec") if spec else {}, present(given) or {}))


def _create(cli: Cli, values: dict[str, Any]) -> None:
    from mitosis.cli.validation import named, validated
    from mitosis.contracts.http import TaskGroupSpec

    if "name" not in values:
        raise InvalidRequest("name the group, as in: mitosis group create my-group", option="NAME")
    wanted = validated(TaskGroupSpec, values, OPTION_OF_FIELD)
    with named(OPTION_OF_FIELD), cli.client() as client:
        group = client.create_group(wanted)
    cli.output.item(group_item(group))
    cli.output.note(f"\nnext: mitosis group submit {group.name} -- COMMAND …")


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """``above`` laid over ``below``, objects field by field."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def parse_cores(text: str) -> list[int]:
    """``0,2-5`` as ``[0, 2, 3, 4, 5]``.

    Raises:
        InvalidRequest: naming --cores and what would be right.
    """
    cores: list[int] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last or last > _MAX_CORE:
            raise InvalidRequest(
                f"{part.strip()!r} is not a core or a range of cores; write them as in 0,2-5",
                option="--cores",
            )
        cores.extend(range(first, last + 1))
    return cores


def cpu_binding(
    pin: str | None, cores: str | None, cores_per_worker: int | None
) -> dict[str, Any] | None:
    return present(
        {
            "strategy": pin.replace("-", "_") if pin else None,
            "cores": parse_cores(cores) if cores is not None else None,
            "cores_per_worker": cores_per_worker,
        }
    )


def hook(command: str | None, file: Path | None, option: str) -> dict[str, Any] | None:
    if command is not None and file is not None:
        raise InvalidRequest(f"give either {option} or {option}-file, not both", option=option)
    if file is not None:
        return read_json_object(file, f"{option}-file")
    if command is None:
        return None
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidRequest(
            f"cannot split {command!r} into words: {error}", option=option
        ) from None
    if not words:
        raise InvalidRequest("must name a program", option=option)
    return {"command": words}


def present(values: dict[str, Any]) -> dict[str, Any] | None:
    """The values that were given; None when there is none."""
    return {key: value for key, value in values.items() if value not in (None, [])} or None

"""`mitosis group create`: merges options and a JSON file into one :class:`TaskGroupSpec`."""

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from mitosis.cli.context import Cli
from mitosis.cli.group.options import GroupOptions
from mitosis.cli.group.view import group_item
from mitosis.cli.input_files import read_json_object
from mitosis.cli.references import check_reference
from mitosis.contracts.errors import InvalidRequest

OPTION_OF_FIELD = {
    "name": "NAME",
    "group_name": "--user-group",
    "tags": "--tag",
    "labels": "--label",
    "tag_match": "--tag-match",
    "priority": "--priority",
    "worker_allocation_plan.worker_count": "--workers",
    "worker_allocation_plan.cpu_binding.strategy": "--pin",
    "worker_allocation_plan.cpu_binding.cores": "--cores",
    "worker_allocation_plan.cpu_binding.cores_per_worker": "--cores-per-worker",
    "worker_allocation_plan.max_tasks_per_worker": "--max-tasks-per-worker",
    "worker_allocation_plan.max_processes_per_worker": "--max-processes-per-worker",
    "worker_allocation_plan.handler_modules": "--handler-module",
    "worker_allocation_plan.python_path": "--python-path",
    "environment_setup_hook": "--setup",
    "environment_teardown_hook": "--teardown",
    "environment_probe": "--probe",
    "on_setup_failure": "--on-setup-failure",
    "auto_close_timeout": "--auto-close",
    "close_deadline": "--deadline",
    "max_managers": "--max-hosts",
    "manager_ids": "--host",
    "require_host": "--require-host",
    "cancel_grace_seconds": "--cancel-grace",
    "reopen_on_submit": "--reopen-on-submit",
    "host_lost_after": "--host-lost-after",
    "lease_settings.lease_duration": "--lease",
    "lease_settings.longest_lease": "--longest-lease",
    "lease_settings.idle_threshold": "--idle",
    "lease_settings.longest_idle": "--longest-idle",
    "lease_settings.preemption_grace": "--preemption-grace",
}
"""Field of the API -> option, to name the option when a field is refused."""

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_MAX_CORE = 100_000


def create(
    cli: Cli,
    options: GroupOptions,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the task group.")
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The whole task group as JSON (- = stdin); options override it."
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            metavar="TEMPLATE",
            help="Take everything else from this template: id, NAME or USERGROUP/NAME.",
        ),
    ] = None,
) -> None:
    """Create a task group.

    It accepts tasks until it is closed: by `mitosis group close`, or by --auto-close.
    """
    from mitosis.cli.validation import named, validated
    from mitosis.contracts.http import TaskGroupSpec

    typed = typed_fields(name, options)
    values = merged(read_json_object(spec, "--spec") if spec else {}, typed)
    if "name" not in values:
        raise InvalidRequest(
            "name the task group, as in: mitosis group create my-group", option="NAME"
        )
    names = option_names(options, typed, spec)
    checked = validated(TaskGroupSpec, values, names)
    if template is not None:
        names = {f"overrides.{field}": option for field, option in names.items()}
        names |= {"name": "NAME", "template": "--template"}
    with named(names), cli.client() as client:
        if template is None:
            group = client.create_group(checked)
        else:
            values.pop("name")
            owner = values.pop("group_name", None)
            group = client.create_from_template(
                check_reference(template), checked.name, values, group_name=owner
            )
    cli.output.item(group_item(group))
    cli.output.note(f"\nnext: mitosis group submit {group.name} -- COMMAND …")


def typed_fields(name: str | None, options: GroupOptions) -> dict[str, Any]:
    """Return the fields of the task group that the command line sets."""
    from mitosis.cli.validation import positive_duration, seconds

    lasting = positive_duration(options.deadline, "--deadline")
    fields: dict[str, Any] = {
        "name": name,
        "group_name": options.user_group,
        "tags": options.tag,
        "labels": options.label,
        "tag_match": options.tag_match,
        "priority": options.priority,
        "worker_allocation_plan": present(
            {
                "worker_count": options.workers,
                "max_tasks_per_worker": options.max_tasks_per_worker,
                "max_processes_per_worker": options.max_processes_per_worker,
                "handler_modules": options.handler_module,
                "python_path": options.python_path,
                "cpu_binding": cpu_binding(options.pin, options.cores, options.cores_per_worker),
            }
        ),
        "environment_setup_hook": hook(options.setup, options.setup_file, "--setup"),
        "environment_teardown_hook": hook(options.teardown, options.teardown_file, "--teardown"),
        "environment_probe": hook(options.probe, None, "--probe"),
        "on_setup_failure": underscored(options.on_setup_failure),
        "auto_close_timeout": options.auto_close,
        "close_deadline": None if lasting is None else datetime.now(UTC) + lasting,
        "max_managers": options.max_hosts,
        "assignment_method": "user_specified" if options.host else None,
        "manager_ids": options.host,
        "require_host": options.require_host,
        "cancel_grace_seconds": seconds(options.cancel_grace, "--cancel-grace"),
        "reopen_on_submit": options.reopen_on_submit,
        "host_lost_after": options.host_lost_after,
        "lease_settings": present(
            {
                "lease_duration": options.lease,
                "longest_lease": options.longest_lease,
                "idle_threshold": options.idle,
                "longest_idle": options.longest_idle,
                "preemption_grace": options.preemption_grace,
            }
        ),
    }
    return present(fields) or {}


def option_names(
    options: GroupOptions, typed: dict[str, Any], spec: Path | None, file: str = "--spec"
) -> dict[str, str]:
    """Return the option to name for each field: the typed one, else ``file``, which has the field."""
    names = dict(OPTION_OF_FIELD)
    if spec is not None:
        names = {field: names[field] for field in _paths(typed) if field in names} | {"": file}
    if options.setup_file is not None:
        names["environment_setup_hook"] = "--setup-file"
    if options.teardown_file is not None:
        names["environment_teardown_hook"] = "--teardown-file"
    return names


def _paths(values: dict[str, Any], above: str = "") -> Iterator[str]:
    """Yield the path of every value, as in ``worker_allocation_plan.worker_count``."""
    for key, value in values.items():
        yield above + key
        if isinstance(value, dict):
            yield from _paths(value, f"{above}{key}.")


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return ``below`` with the values of ``above``; objects are merged field by field."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def underscored(choice: str | None) -> str | None:
    """Return a choice of an option as the API spells it."""
    return choice.replace("-", "_") if choice else None


def parse_cores(text: str) -> list[int]:
    """Parse ``0,2-5`` as ``[0, 2, 3, 4, 5]``.

    Raises:
        InvalidRequest: names --cores and what would be right.
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
    """Return the fields of the CPU binding that the options set; None without any."""
    return present(
        {
            "strategy": underscored(pin),
            "cores": parse_cores(cores) if cores is not None else None,
            "cores_per_worker": cores_per_worker,
        }
    )


def hook(command: str | None, file: Path | None, option: str) -> dict[str, Any] | None:
    """Return the fields of a hook, from a command line or a JSON file; None without either.

    Raises:
        InvalidRequest: both are given, or one is not a hook; names the option.
    """
    if command is not None and file is not None:
        raise InvalidRequest(f"give {option} or {option}-file, not both", option=option)
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
    """Return the values that are not empty; None if all are."""
    return {key: value for key, value in values.items() if value not in (None, [])} or None

"""`mitosis worker --task …`: the process of a worker service."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mitosis.cli.stack.options import DataDirOption
from mitosis.contracts.errors import InvalidRequest

if TYPE_CHECKING:
    from mitosis.settings import Settings
    from mitosis.worker_service.config import ServiceConfig
    from mitosis.worker_service.discovery import Sources

MAX_SLOTS = 10_000
"""Of one process, as workers of a host."""
OPTIONS = {
    "task": "--task",
    "command": "--command",
    "executor": "--executor",
    "module": "--module",
    "entry_points": "--entry-points",
    "configuration": "--configuration",
    "worker_id": "--id",
    "groups": "--group",
    "tags": "--tag",
    "labels": "--label",
    "slots": "--slots",
    "priority": "--priority",
    "max_concurrent": "--max-concurrent",
}

TaskOption = Annotated[
    list[str] | None,
    typer.Option(
        "--task",
        metavar="NAME[=HANDLER]",
        help="Named task to execute, as images/resize@1.4.0=shop.images:resize; repeatable.",
    ),
]
CommandOption = Annotated[
    str | None,
    typer.Option(
        "--command",
        metavar="WORDS",
        help="Program of the tasks without a handler: reads the attempt as JSON, writes its result as JSON.",
    ),
]
ExecutorOption = Annotated[
    str | None,
    typer.Option(
        "--executor",
        metavar="KIND",
        help="What executes the tasks whose file names nothing else, as container.",
    ),
]
ModuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--module",
        help="Module whose functions with @mitosis.handler(named_task=…) are executed; repeatable.",
    ),
]
EntryPointsOption = Annotated[
    bool,
    typer.Option(
        "--entry-points", help="Execute the handlers of installed packages (mitosis.handlers)."
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FOLDER",
        help="Folder of files *.yaml, one named task each; read again when they change.",
        exists=True,
        file_okay=False,
    ),
]
IdOption = Annotated[
    str | None,
    typer.Option("--id", metavar="WORKER", help="Id of the service; by default the host's name."),
]
SlotsOption = Annotated[
    int | None,
    typer.Option(
        "--slots", min=1, max=MAX_SLOTS, help="Tasks at the same time; by default one per core."
    ),
]
ConfigurationOption = Annotated[
    str | None,
    typer.Option("--configuration", metavar="JSON", help="Object given to each attempt."),
]
PriorityOption = Annotated[
    int,
    typer.Option(
        "--priority", min=-(2**31), max=2**31 - 1, help="Services with a higher one are preferred."
    ),
]
MaxConcurrentOption = Annotated[
    int | None,
    typer.Option("--max-concurrent", min=1, help="Of each named task at the same time."),
]
GroupOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group", metavar="NAME[:ROLE]", help="User group that it works for; repeatable."
    ),
]
TagOption = Annotated[list[str] | None, typer.Option("--tag", help="Tag; repeatable.")]
LabelOption = Annotated[list[str] | None, typer.Option("--label", help="Label; repeatable.")]
StateDirOption = Annotated[
    Path | None,
    typer.Option("--state-dir", help="Folder of its token and journal; must survive a restart."),
]
TakeOverOption = Annotated[
    bool, typer.Option("--take-over", help="Take over the id of a service that is in contact.")
]
NowOption = Annotated[
    bool, typer.Option("--now", help="Stop what runs at the first SIGTERM, not at the second.")
]
LookOption = Annotated[
    float,
    typer.Option("--look-seconds", min=0.05, help="So late a cancelled task is stopped, at most."),
]


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """What is given to `mitosis worker`."""

    task: Sequence[str]
    command: str | None
    executor: str | None
    modules: Sequence[str]
    entry_points: bool
    config: Path | None
    worker_id: str | None
    slots: int | None
    configuration: str | None
    priority: int
    max_concurrent: int | None
    groups: Sequence[str]
    tags: Sequence[str]
    labels: Sequence[str]
    state_dir: Path | None
    data_dir: DataDirOption
    take_over: bool
    now: bool
    look_seconds: float


def run(options: ProcessOptions) -> NoReturn:
    """Run a worker service until SIGTERM; it finds the API as every command does.

    Raises:
        InvalidRequest: an option is wrong; says what would be right.
    """
    from mitosis.cli.validation import named
    from mitosis.settings import load_settings
    from mitosis.telemetry import configure_logging
    from mitosis.worker_service.discovery import Discovery
    from mitosis.worker_service.process import serve

    settings = load_settings({"data_dir": options.data_dir}).settings
    folder = os.getcwd()  # noqa: PTH109 - as text
    with named(OPTIONS):
        discovery = Discovery(_sources(options, folder))
        config = _config(options, settings, folder)
    configure_logging(settings.telemetry.log_level, settings.telemetry.log_format)
    serve(config, discovery)


def _sources(options: ProcessOptions, folder: str) -> "Sources":
    from mitosis.cli.word_splitting import words_of
    from mitosis.worker_service.discovery import Sources

    try:
        command = words_of(options.command or "")
    except ValueError as error:
        raise InvalidRequest(f"{error}: close the quotation", field="command") from None
    return Sources(
        folder=folder,
        tasks=options.task,
        command=command,
        executor=options.executor,
        modules=options.modules,
        entry_points=options.entry_points,
        files=options.config,
        configuration=_configuration(options.configuration),
        priority=options.priority,
        max_concurrent=options.max_concurrent,
    )


def _configuration(text: str | None) -> dict[str, Any]:
    """Return the object that is written as JSON.

    Raises:
        InvalidRequest: it is none.
    """
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"must be JSON: {error}", field="configuration") from None
    if not isinstance(found, dict):
        raise InvalidRequest(
            """must be an object of JSON, as '{"size": 300}'""", field="configuration"
        )
    return found


def _config(options: ProcessOptions, settings: "Settings", folder: str) -> "ServiceConfig":
    from mitosis.cli.connection import data_dir_of, find_api
    from mitosis.cli.stack.agent import host_name
    from mitosis.cli.validation import validated
    from mitosis.contracts.worker_services import RegisterWorker
    from mitosis.worker_service.config import ServiceConfig

    fields = {
        "worker_id": options.worker_id or host_name(),
        "slots": options.slots or len(os.sched_getaffinity(0)),
        "groups": tuple(options.groups),
        "tags": frozenset(options.tags),
        "labels": frozenset(options.labels),
    }
    checked = validated(RegisterWorker, fields, OPTIONS)
    target = find_api(settings)
    state_dir = options.state_dir or data_dir_of(settings) / "workers" / checked.worker_id
    return ServiceConfig(
        api_url=target.address,
        worker_id=checked.worker_id,
        token=target.token,
        ca_file=target.ca_file,
        state_dir=state_dir.absolute(),
        folder=Path(folder),
        run_parent=settings.run_dir,
        slots=checked.slots,
        groups=checked.groups,
        tags=checked.tags,
        labels=checked.labels,
        python_path=(folder,),
        take_over=options.take_over,
        stop_now=options.now,
        look_seconds=options.look_seconds,
        min_free_bytes=settings.agent.min_free_bytes,
    )

"""Options of a task group, for the commands that create or change one."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from mitosis.cli.registration import FormerNames

UserGroupOption = Annotated[
    str | None,
    typer.Option("--user-group", help="User group that owns it. [default: your own]"),
    FormerNames(("--group",)),
]
TagOption = Annotated[
    list[str] | None, typer.Option(help="A tag that hosts must have; repeatable.")
]
LabelOption = Annotated[
    list[str] | None, typer.Option(help="A label to find the task group by; repeatable.")
]
PriorityOption = Annotated[int | None, typer.Option(help="A higher number is served first.")]
PinOption = Annotated[
    Literal["round-robin", "exclusive", "shared"] | None,
    typer.Option(help="How workers are bound to cores."),
]
CoresOption = Annotated[
    str | None, typer.Option(metavar="LIST", help="Cores to bind workers to, as in 0,2-5.")
]
CoresPerWorkerOption = Annotated[
    int | None, typer.Option(help="Cores of each worker, with --pin exclusive.")
]
MaxTasksOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="Start a worker process again after so many tasks."),
]
MaxProcessesOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Kill a task that has more processes and threads. [default: 4096 or less]"
    ),
]
TagMatchOption = Annotated[
    Literal["all", "any"] | None,
    typer.Option(help="Whether hosts must have all the tags, or any of them."),
]
WorkersOption = Annotated[int | None, typer.Option(help="Worker processes on each host.")]
CancelGraceOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Time from SIGTERM to SIGKILL when tasks are cancelled."),
]
ReopenOption = Annotated[
    bool | None,
    typer.Option(
        "--reopen-on-submit/--no-reopen-on-submit",
        help="Whether a submit opens the task group again after it was closed.",
    ),
]
OnSetupFailureOption = Annotated[
    Literal["end-when-closed", "end", "wait"] | None,
    typer.Option(help="What it does when its setup has failed on every host that may run it."),
]
SetupOption = Annotated[
    str | None,
    typer.Option(metavar="COMMAND", help="Command that prepares a host, quoted as one word."),
]
TeardownOption = Annotated[
    str | None, typer.Option(metavar="COMMAND", help="Command that cleans a host.")
]

ProbeOption = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="Command that checks whether a host that was prepared before still is.",
    ),
]


LeaseOption = Annotated[
    str | None,
    typer.Option(
        "--lease",
        metavar="TIME",
        help="How long a host stays at least while other groups go first.",
    ),
]
LongestLeaseOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="How long it stays at most, also where a move costs much."),
]
IdleOption = Annotated[
    str | None,
    typer.Option(
        "--idle", metavar="TIME", help="How long a host without work is kept from other groups."
    ),
]
PreemptionGraceOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="After this long, a host that another group takes gives back tasks that have not started.",
    ),
]
LongestIdleOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="The same at most, also where setup and teardown take longer."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """The options of `mitosis group create` that describe the task group."""

    user_group: UserGroupOption = None
    tag: TagOption = None
    label: LabelOption = None
    tag_match: TagMatchOption = None
    priority: PriorityOption = None
    workers: WorkersOption = None
    pin: PinOption = None
    cores: CoresOption = None
    cores_per_worker: CoresPerWorkerOption = None
    max_tasks_per_worker: MaxTasksOption = None
    max_processes_per_worker: MaxProcessesOption = None
    handler_module: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Module that workers import; repeatable."),
    ] = None
    python_path: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="Folder that workers import from; repeatable."),
    ] = None
    setup: SetupOption = None
    setup_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The setup hook as a JSON object.")
    ] = None
    teardown: TeardownOption = None
    teardown_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The teardown hook as a JSON object.")
    ] = None
    probe: ProbeOption = None
    on_setup_failure: OnSetupFailureOption = None
    auto_close: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Close after this long without a submission, as in 30m."),
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="After this long, close the group and cancel its unfinished tasks with grace.",
        ),
    ] = None
    max_hosts: Annotated[
        int | None,
        typer.Option(help="Most hosts at the same time."),
        FormerNames(("--max-managers",)),
    ] = None
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Run only on the host with this id; repeatable."),
        FormerNames(("--manager",)),
    ] = None
    require_host: Annotated[
        bool | None,
        typer.Option(
            "--require-host",
            help="Fail if no host that is registered now may run it, as by its tags.",
        ),
    ] = None
    cancel_grace: CancelGraceOption = None
    reopen_on_submit: ReopenOption = None
    host_lost_after: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Declare a host lost after this long without contact."),
    ] = None
    lease: LeaseOption = None
    longest_lease: LongestLeaseOption = None
    idle: IdleOption = None
    longest_idle: LongestIdleOption = None
    preemption_grace: PreemptionGraceOption = None

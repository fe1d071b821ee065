"""The options of `mitosis group create`, one type each."""

from pathlib import Path
from typing import Annotated, Literal

import typer

NameOption = Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the group.")]
GroupOption = Annotated[
    str | None, typer.Option(help="User group that owns it; your own when left out.")
]
TagOption = Annotated[
    list[str] | None, typer.Option(help="A tag that hosts must have; may be repeated.")
]
LabelOption = Annotated[
    list[str] | None, typer.Option(help="A label to find it by; may be repeated.")
]
TagMatchOption = Annotated[
    Literal["all", "any"] | None, typer.Option(help="Must hosts have all tags, or any?")
]
PriorityOption = Annotated[int | None, typer.Option(help="Higher goes first.")]
WorkersOption = Annotated[int | None, typer.Option(help="Worker processes on each host.")]
PinOption = Annotated[
    Literal["round-robin", "exclusive", "shared"] | None,
    typer.Option(help="How workers are bound to cores."),
]
CoresOption = Annotated[
    str | None, typer.Option(metavar="LIST", help="Cores to bind to, as in 0,2-5.")
]
CoresPerWorkerOption = Annotated[
    int | None, typer.Option(help="With --pin exclusive: cores of each worker.")
]
HandlerModuleOption = Annotated[
    list[str] | None,
    typer.Option(metavar="MODULE", help="Module that workers import; may be repeated."),
]
PythonPathOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FOLDER", help="Folder to import from; may be repeated."),
]
SetupOption = Annotated[
    str | None,
    typer.Option(metavar="COMMAND", help="Command that prepares a host, quoted as one word."),
]
SetupFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The setup hook as a JSON object.")
]
TeardownOption = Annotated[
    str | None, typer.Option(metavar="COMMAND", help="Command that cleans a host.")
]
TeardownFileOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The teardown hook as a JSON object.")
]
AutoCloseOption = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Close after this long without a submission, as in 30m."),
]
DeadlineOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="After this long close the group, if it is open, and cancel with grace what is unfinished.",
    ),
]
MaxManagersOption = Annotated[int | None, typer.Option(help="Most hosts at the same time.")]
ManagerOption = Annotated[
    list[str] | None,
    typer.Option(metavar="ID", help="Only this manager may run it; may be repeated."),
]
CancelGraceOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="From SIGTERM to SIGKILL when cancelled.")
]
HostLostAfterOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Silence of a host that makes it lost.")
]
SpecOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The whole group as JSON (- = stdin); options go first."),
]

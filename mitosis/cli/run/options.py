"""The options of `mitosis run`, one type each."""

from pathlib import Path
from typing import Annotated, Literal

import typer

WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="COMMAND [ARG]... [::: VALUE...]", help="What to run, and on what."),
]
FileOption = Annotated[
    Path | None,
    typer.Option("--file", "-a", metavar="FILE", help="One input a line (- = stdin)."),
]
NulOption = Annotated[
    bool, typer.Option("--null", "-0", help="Inputs of a file or pipe end with NUL, not newline.")
]
RangeOption = Annotated[
    str | None,
    typer.Option(
        "--range", metavar="A-B[:STEP]", help="Numbers, both ends included; 01-10 keeps zeros."
    ),
]
JsonSourceOption = Annotated[
    Path | None,
    typer.Option(
        "--from-json", metavar="FILE", help="A list, or one value a line; {key} of objects."
    ),
]
CsvSourceOption = Annotated[
    Path | None, typer.Option("--from-csv", metavar="FILE", help="Rows below a header; {column}.")
]
ShellOption = Annotated[
    bool,
    typer.Option(
        "--shell", help="The words are one shell line, which gets each value as one word."
    ),
]
ColsepOption = Annotated[
    str | None,
    typer.Option("--colsep", "-C", metavar="TEXT", help="Split each line there: {1}, {2} …"),
]
BatchOption = Annotated[
    int | None, typer.Option("--batch", "-n", metavar="N", help="So many inputs for each task.")
]
ReplaceOption = Annotated[
    str | None,
    typer.Option("--replace", "-I", metavar="TEXT", help="Stands for the input instead of {}."),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers", "-w", "-j", "-P", help="Workers on each host; default: the cores of this one."
    ),
]
HostsOption = Annotated[
    int | None, typer.Option("--max-managers", "--hosts", help="Most hosts at the same time.")
]
RunNameOption = Annotated[
    str | None, typer.Option("--name", help="Name of the task group; default: made up.")
]
KeepOption = Annotated[
    Path | None,
    typer.Option(
        "--keep-output",
        "-o",
        metavar="DIR",
        help="Write N.out and N.err of input N; DIR must have none yet.",
    ),
]
JoblogOption = Annotated[
    Path | None,
    typer.Option("--joblog", metavar="FILE", help="One line a task, as GNU parallel writes it."),
]
KeepOrderOption = Annotated[
    bool, typer.Option("--keep-order", "-k", help="Print the output in the order of the inputs.")
]
MaxFailOption = Annotated[
    str | None,
    typer.Option(
        "--max-fail",
        metavar="N|P%",
        help="Cancel when more tasks than this failed; 0: at the first.",
    ),
]
TagOutputOption = Annotated[
    bool,
    typer.Option("--tag-output", help="Number of the task before each line, as in GROUP/TASK."),
]
SilentOption = Annotated[bool, typer.Option("--silent", help="Do not print the output of tasks.")]
DetachOption = Annotated[
    bool, typer.Option("--detach", "-d", help="Submit, close, and do not wait.")
]
DeadlineOption = Annotated[
    str | None, typer.Option("--deadline", metavar="TIME", help="Cancel the run after this long.")
]
OnInterruptOption = Annotated[
    Literal["detach", "cancel"] | None,
    typer.Option(
        "--on-interrupt", help="What the first Ctrl-C does. [default: detach; cancel with --up]"
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the argv of the first 5 tasks and stop.")
]
AllOption = Annotated[bool, typer.Option("--all", help="With --dry-run: of all tasks.")]
UpOption = Annotated[
    bool,
    typer.Option(
        "--up", help="Start a stack for this run alone, in a temporary folder; it ends with it."
    ),
]
RunEnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME[=VALUE]", help="For the tasks; NAME alone: as it is here."),
]
RunCwdOption = Annotated[
    str | None,
    typer.Option(
        "--cwd", metavar="FOLDER", help="Working directory; default: this one; -: a scratch folder."
    ),
]

"""The options of `mitosis run`, grouped by what they describe."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from mitosis.cli.arguments import ProgressOption
from mitosis.cli.group.options import (
    CoresOption,
    CoresPerWorkerOption,
    MaxProcessesOption,
    MaxTasksOption,
    PinOption,
    PriorityOption,
    ProbeOption,
    SetupOption,
    TagOption,
    TeardownOption,
    UserGroupOption,
)
from mitosis.cli.group.submit_options import EnvOption, RetriesOption, TimeoutOption
from mitosis.cli.registration import FormerNames
from mitosis.cli.run.sources import LIST_OPENINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInputs:
    """The command, its inputs and its placeholders."""

    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND [ARG]... [::: VALUE...]", help="The command and its inputs."
        ),
    ] = None
    """The command and, from the first ``:::`` on, its values."""
    file: Annotated[
        Path | None,
        typer.Option("--file", "-a", metavar="FILE", help="One input per line (- = stdin)."),
    ] = None
    null: Annotated[
        bool,
        typer.Option("--null", "-0", help="Inputs of a file or pipe end with NUL, not newline."),
    ] = False
    numbers: Annotated[
        str | None,
        typer.Option(
            "--range", metavar="A-B[:STEP]", help="Numbers, both ends included; 01-10 keeps zeros."
        ),
    ] = None
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--from-json", metavar="FILE", help="A list, or one value per line; {key} of objects."
        ),
    ] = None
    csv_file: Annotated[
        Path | None,
        typer.Option("--from-csv", metavar="FILE", help="Rows below a header; {column}."),
    ] = None
    colsep: Annotated[
        str | None,
        typer.Option("--colsep", "-C", metavar="TEXT", help="Split each line here: {1}, {2} …"),
    ] = None
    batch: Annotated[
        int | None,
        typer.Option("--batch", "-n", metavar="N", help="Number of inputs for each task."),
    ] = None
    replace: Annotated[
        str | None,
        typer.Option("--replace", "-I", metavar="TEXT", help="Placeholder to use instead of {}."),
    ] = None
    shell: Annotated[
        bool,
        typer.Option(
            "--shell", help="Run the words as one shell line; each value becomes one word of it."
        ),
    ] = False

    @property
    def command(self) -> Sequence[str]:
        """The words before the first ``:::``."""
        words = self.words or []
        at = next((i for i, word in enumerate(words) if word in LIST_OPENINGS), len(words))
        return words[:at]

    @property
    def value_words(self) -> Sequence[str]:
        """``:::`` and all words after it."""
        return (self.words or [])[len(self.command) :]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroupOptions:
    """The task group of the run, and the hosts that serve it."""

    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "-w",
            "-j",
            "-P",
            help="Workers on each host. [default: the cores of this host]",
        ),
    ] = None
    pin: PinOption = None
    cores: CoresOption = None
    cores_per_worker: CoresPerWorkerOption = None
    max_tasks_per_worker: MaxTasksOption = None
    max_processes_per_worker: MaxProcessesOption = None
    setup: SetupOption = None
    teardown: TeardownOption = None
    probe: ProbeOption = None
    tag: TagOption = None
    user_group: UserGroupOption = None
    max_hosts: Annotated[
        int | None,
        typer.Option("--max-hosts", help="Most hosts at the same time."),
        FormerNames(("--max-managers", "--hosts")),
    ] = None
    name: Annotated[
        str | None,
        typer.Option("--name", help="Name of the task group. [default: made from the command]"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTaskOptions:
    """Options that apply to every task of the run."""

    priority: PriorityOption = None
    timeout: TimeoutOption = None
    retries: RetriesOption = None
    env: EnvOption = None
    cwd: Annotated[
        str | None,
        typer.Option(
            "--cwd",
            metavar="FOLDER",
            help="Working directory, - for a scratch folder. [default: this folder]",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunControl:
    """How the run is started, shown and ended."""

    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Submit, close the task group, do not wait.")
    ] = False
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="TIME", help="Cancel the run after this long."),
    ] = None
    max_fail: Annotated[
        str | None,
        typer.Option(
            "--max-fail",
            metavar="N|P%",
            help="Cancel when more tasks than this have failed; 0 cancels at the first failure.",
        ),
    ] = None
    on_interrupt: Annotated[
        Literal["detach", "cancel"] | None,
        typer.Option(
            "--on-interrupt", help="What the first Ctrl-C does. [default: detach; cancel with --up]"
        ),
    ] = None
    progress: ProgressOption = "auto"
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the argv of the first 5 tasks and stop.")
    ] = False
    all_tasks: Annotated[
        bool, typer.Option("--all", help="Print the argv of all tasks, with --dry-run.")
    ] = False
    up: Annotated[
        bool,
        typer.Option(
            "--up", help="Start a stack in a temporary folder for this run; it ends with the run."
        ),
    ] = False

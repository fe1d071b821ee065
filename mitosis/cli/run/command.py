"""`mitosis run`: the command line becomes a :class:`RunPlan`; nothing is created before all of it is right.

Options end at the first word of the command, so its own flags are its own.
"""

import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mitosis.cli import plain_app
from mitosis.cli.command import Cli, with_cli
from mitosis.cli.group_create import OPTION_OF_FIELD, cpu_binding, hook, present
from mitosis.cli.group_create_options import (
    CoresOption,
    CoresPerWorkerOption,
    GroupOption,
    MaxManagersOption,
    PinOption,
    PriorityOption,
    SetupOption,
    TagOption,
    TeardownOption,
)
from mitosis.cli.group_submit_options import RetriesOption, TimeoutOption
from mitosis.cli.run.display import Display, choose_display
from mitosis.cli.run.exit import RunExit, with_run_statuses
from mitosis.cli.run.options import (
    AllOption,
    CsvSourceOption,
    DeadlineOption,
    DetachOption,
    DryRunOption,
    FileOption,
    JsonSourceOption,
    KeepOption,
    NulOption,
    OnInterruptOption,
    ProgressOption,
    RangeOption,
    RunCwdOption,
    RunEnvOption,
    RunNameOption,
    ShellOption,
    SilentOption,
    TagOutputOption,
    UpOption,
    WordsArgument,
    WorkersOption,
)
from mitosis.cli.run.sources import (
    Source,
    from_csv,
    from_json,
    from_lines,
    from_range,
    from_values,
    no_source,
    open_file,
    stdin_is_given,
)
from mitosis.cli.run.template import Template, corrected
from mitosis.contracts.errors import InvalidRequest, MitosisError

if TYPE_CHECKING:
    from mitosis.cli.run.runner import RunPlan

app = plain_app()
VALUES = ":::"
SHOWN = 5


def run(
    cli: Cli,
    words: WordsArgument = None,
    file: FileOption = None,
    null: NulOption = False,
    numbers: RangeOption = None,
    from_json_file: JsonSourceOption = None,
    from_csv_file: CsvSourceOption = None,
    shell: ShellOption = False,
    workers: WorkersOption = None,
    pin: PinOption = None,
    cores: CoresOption = None,
    cores_per_worker: CoresPerWorkerOption = None,
    setup: SetupOption = None,
    teardown: TeardownOption = None,
    tag: TagOption = None,
    group: GroupOption = None,
    max_managers: MaxManagersOption = None,
    name: RunNameOption = None,
    priority: PriorityOption = None,
    timeout: TimeoutOption = None,
    retries: RetriesOption = None,
    env: RunEnvOption = None,
    cwd: RunCwdOption = None,
    keep_output: KeepOption = None,
    tag_output: TagOutputOption = False,
    silent: SilentOption = False,
    detach: DetachOption = False,
    deadline: DeadlineOption = None,
    on_interrupt: OnInterruptOption = "detach",
    progress: ProgressOption = "auto",
    dry_run: DryRunOption = False,
    all_tasks: AllOption = False,
    up: UpOption = False,
) -> int:
    """Run a command over many inputs: ::: values, a file, a pipe, a range, JSON or CSV.

    {} is the input, {.} without its ending, {/} its name, {//} its folder, {/.} the name without
    ending, {#} its number, {name} a column; {{ is a brace. Each stays one argument: there is no shell
    unless --shell.

    Exit status: 0 all ok, 1 tasks failed, 2 usage, 3 could not run, 4 no API, 5 cancelled by others,
    124 --deadline, 130 Ctrl-C.
    """
    from mitosis.cli.validation import duration, seconds, validated
    from mitosis.contracts.http import TaskGroupSpec

    given, values = _split(words or [])
    files = _Sources(values, file, null, numbers, from_json_file, from_csv_file)
    source = files.open()
    template = Template.parse(given, source.columns if source else (), through_shell=shell)
    source = _fitting(template, source, corrected(given, values))
    fields = {
        "name": name or _made_up(given[0]),
        "group_name": group,
        "tags": tag,
        "labels": ["run"],
        "max_managers": max_managers,
        "worker_allocation_plan": present(
            {
                "worker_count": workers or os.cpu_count(),
                "cpu_binding": cpu_binding(pin, cores, cores_per_worker),
            }
        ),
        "environment_setup_hook": _here(hook(setup, None, "--setup")),
        "environment_teardown_hook": _here(hook(teardown, None, "--teardown")),
    }
    spec = validated(TaskGroupSpec, present(fields) or {}, OPTION_OF_FIELD)
    task_fields = _task_fields(priority, seconds(timeout, "--timeout"), retries, env, cwd)
    from mitosis.cli.run.runner import RunPlan

    plan = RunPlan(
        spec=spec,
        template=template,
        source=source,
        task_fields=task_fields,
        detach=detach,
        deadline=duration(deadline, "--deadline"),
        on_interrupt="cancel" if up else on_interrupt,
        keep_output=keep_output,
        tag_output=tag_output,
        silent=silent,
    )
    if dry_run:
        return _dry_run(plan, everything=all_tasks)
    return _run(cli, plan, choose_display(progress), up=up)


app.command("run", context_settings={"allow_interspersed_args": False})(
    with_cli(with_run_statuses(run))
)


class _Sources:
    """The sources that the command line names; at most one."""

    def __init__(
        self,
        values: Sequence[str] | None,
        file: Path | None,
        null: bool,
        numbers: str | None,
        json_file: Path | None,
        csv_file: Path | None,
    ) -> None:
        self._null = null
        self._named: dict[str, Any] = {
            VALUES: values,
            "--file": file,
            "--range": numbers,
            "--from-json": json_file,
            "--from-csv": csv_file,
        }

    def open(self) -> Source | None:
        """The source, or None when the command line names none.

        Raises:
            InvalidRequest: more than one, or it cannot be read.
        """
        given = {option: value for option, value in self._named.items() if value is not None}
        if len(given) > 1:
            raise InvalidRequest(f"give one source of inputs, not {' and '.join(given)}")
        for option, value in given.items():
            return self._opened(option, value)
        return from_lines(sys.stdin.buffer, nul=self._null) if stdin_is_given() else None

    def _opened(self, option: str, value: Any) -> Source:
        match option:
            case ":::":
                return from_values(value)
            case "--range":
                return from_range(value)
            case "--from-json":
                return from_json(open_file(value, option))
            case "--from-csv":
                return from_csv(open_file(value, option))
            case _:
                return from_lines(open_file(value, option), nul=self._null)


def _split(words: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """The command, and the values behind ``:::`` if there are any."""
    if VALUES not in words:
        return list(words), None
    at = words.index(VALUES)
    return list(words[:at]), list(words[at + 1 :])


def _fitting(template: Template, source: Source | None, right: str) -> Source:
    """Inputs need a place in the command, and a place needs inputs.

    Raises:
        InvalidRequest: shows the line as it should be.
    """
    if source is None:
        if template.has_placeholders:
            raise InvalidRequest(
                "the command has a placeholder, but there are no inputs",
                hint="add them: ::: VALUE..., --file FILE, --range 1-10, or a pipe",
            )
        return no_source()
    if not template.has_placeholders:
        raise InvalidRequest(
            "there are inputs, but the command has no placeholder for them",
            hint=f"put it where it belongs: mitosis run {right}",
        )
    return source


def _task_fields(
    priority: int | None,
    timeout: float | None,
    retries: int | None,
    env: list[str] | None,
    cwd: str | None,
) -> dict[str, Any]:
    from mitosis.contracts.task import RetryPolicy

    if retries is not None and not 0 <= retries < 100:
        raise InvalidRequest("must be 0 to 99", option="--retries")
    folder = None if cwd == "-" else str(Path(cwd or ".").resolve())
    fields: dict[str, Any] = {
        "priority": priority,
        "timeout_seconds": timeout,
        "retry": RetryPolicy(max_attempts=retries + 1) if retries else None,
        "environment": dict(_variable(text) for text in env or ()),
        "working_directory": folder,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        if name not in os.environ:
            raise InvalidRequest(f"{name} is not set here; write {name}=VALUE", option="--env")
        value = os.environ[name]
    return name, value


def _here(spec: dict[str, Any] | None) -> dict[str, Any] | None:
    """A hook runs in this folder too."""
    return None if spec is None else {"working_directory": str(Path.cwd()), **spec}


def _made_up(program: str) -> str:
    """A name that tells what it is and is not taken."""
    letters = "".join(c for c in Path(program).name if c.isascii() and (c.isalnum() or c in "._-"))
    return f"{letters.lstrip('._-')[:40] or 'run'}-{secrets.token_hex(3)}"


def _dry_run(plan: "RunPlan", *, everything: bool) -> int:
    """Print what would run, made by the code that makes it."""
    from mitosis.contracts.task import command_argv

    items = iter(plan.source.items)
    for item in items if everything else islice(items, SHOWN):
        typer.echo(repr(command_argv(plan.task(item))))
    if not everything and next(items, None) is not None:
        count = "" if plan.source.count is None else f" of {plan.source.count}"
        typer.echo(f"the first {SHOWN}{count}; --all shows every one", err=True)
    return RunExit.OK


def _run(cli: Cli, plan: "RunPlan", display: Display, *, up: bool) -> int:
    import stamina

    from mitosis.cli.run.runner import Runner
    from mitosis.client.client import Client

    stamina.instrumentation.set_on_retry_hooks([])  # it would write to standard output

    async def against(url: str, token: str | None) -> int:
        async with Client(url, token, give_up_after=timedelta(minutes=10)) as client:
            return await Runner(client, plan, display).run()

    async def on_own_stack() -> int:
        from mitosis.cli.whole_stack import whole_stack
        from mitosis.settings import Settings
        from mitosis.telemetry import configure_logging

        configure_logging("ERROR")
        with tempfile.TemporaryDirectory(prefix="mitosis-run-") as folder:
            async with whole_stack(Settings(data_dir=Path(folder) / "data")) as stack:
                return await against(stack.connection.api_url, stack.token)

    if up:
        return asyncio.run(on_own_stack())
    try:
        target = cli.target
    except MitosisError as error:
        error.facts["hint"] = f"{error.facts.get('hint', '')}\n  or give this run its own: --up"
        raise
    return asyncio.run(against(target.api_url, target.token))

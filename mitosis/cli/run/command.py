"""`mitosis run`: the command line becomes a :class:`RunPlan`; nothing is created before all of it is right.

Options end at the first word of the command, so its own flags are its own.
"""

import asyncio
import os
import secrets
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mitosis.cli import plain_app
from mitosis.cli.arguments import ProgressOption
from mitosis.cli.context import Cli
from mitosis.cli.follow.display import Display, choose_display
from mitosis.cli.follow.exit_statuses import RunExit, with_run_statuses
from mitosis.cli.group.create import OPTION_OF_FIELD, cpu_binding, hook, present
from mitosis.cli.group.create_options import (
    CoresOption,
    CoresPerWorkerOption,
    GroupOption,
    PinOption,
    PriorityOption,
    SetupOption,
    TagOption,
    TeardownOption,
)
from mitosis.cli.group.submit_options import RetriesOption, TimeoutOption
from mitosis.cli.registration import with_cli
from mitosis.cli.run.choosing import Given, choose
from mitosis.cli.run.options import (
    AllOption,
    BatchOption,
    ColsepOption,
    CsvSourceOption,
    DeadlineOption,
    DetachOption,
    DryRunOption,
    FileOption,
    HostsOption,
    JoblogOption,
    JsonSourceOption,
    KeepOption,
    KeepOrderOption,
    MaxFailOption,
    NulOption,
    OnInterruptOption,
    RangeOption,
    ReplaceOption,
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
from mitosis.cli.task.options import checked_fields, retry_policy, variables
from mitosis.contracts.errors import ApiUnavailable, InvalidRequest

if TYPE_CHECKING:
    from mitosis.cli.run.runner import RunPlan

app = plain_app()
SHOWN = 5
OPTIONS = {**OPTION_OF_FIELD, "name": "--name"}


def run(
    cli: Cli,
    words: WordsArgument = None,
    file: FileOption = None,
    null: NulOption = False,
    numbers: RangeOption = None,
    from_json_file: JsonSourceOption = None,
    from_csv_file: CsvSourceOption = None,
    colsep: ColsepOption = None,
    batch: BatchOption = None,
    replace: ReplaceOption = None,
    shell: ShellOption = False,
    workers: WorkersOption = None,
    pin: PinOption = None,
    cores: CoresOption = None,
    cores_per_worker: CoresPerWorkerOption = None,
    setup: SetupOption = None,
    teardown: TeardownOption = None,
    tag: TagOption = None,
    group: GroupOption = None,
    hosts: HostsOption = None,
    name: RunNameOption = None,
    priority: PriorityOption = None,
    timeout: TimeoutOption = None,
    retries: RetriesOption = None,
    env: RunEnvOption = None,
    cwd: RunCwdOption = None,
    keep_output: KeepOption = None,
    joblog: JoblogOption = None,
    keep_order: KeepOrderOption = False,
    tag_output: TagOutputOption = False,
    silent: SilentOption = False,
    detach: DetachOption = False,
    deadline: DeadlineOption = None,
    max_fail: MaxFailOption = None,
    on_interrupt: OnInterruptOption = None,
    progress: ProgressOption = "auto",
    dry_run: DryRunOption = False,
    all_tasks: AllOption = False,
    up: UpOption = False,
) -> int:
    """Run a command over many inputs: ::: values, a file, a pipe, a range, JSON or CSV.

    {} is the input, {.} without its ending, {/} its name, {//} its folder, {/.} the name without
    ending, {#} its number, {name} a column, {1} that of several lists; other braces stay as they are,
    and {{}} is a plain {}. Each stays one argument: there is no shell unless --shell.

    With --json each result is one line of JSON on standard output, and the group the last one.

    Everything that the command line says, and the first inputs, are checked before a group is made. An
    input that turns out not to be right later (from a slow pipe, or thousands of inputs away) ends the
    run with status 2 and cancels its group; what the tasks before it have done stays done.
    """
    from mitosis.cli.follow.task_output import Wanted
    from mitosis.cli.run.runner import MaxFail, RunPlan
    from mitosis.cli.validation import positive_duration, seconds, validated
    from mitosis.contracts.http import TaskGroupSpec

    if up:
        _check_own_stack(cli, detach=detach, on_interrupt=on_interrupt)
    given = Given(
        words=words or [],
        file=file,
        null=null,
        numbers=numbers,
        json_file=from_json_file,
        csv_file=from_csv_file,
        colsep=colsep,
        batch=batch,
        replace=replace,
        shell=shell,
    )
    template, source = choose(given)
    fields = {
        "name": _made_up(given.command[0]) if name is None else name,
        "group_name": group,
        "tags": tag,
        "labels": ["run"],
        "max_managers": hosts,
        "worker_allocation_plan": present(
            {
                "worker_count": len(os.sched_getaffinity(0)) if workers is None else workers,
                "cpu_binding": cpu_binding(pin, cores, cores_per_worker),
            }
        ),
        "environment_setup_hook": _here(hook(setup, None, "--setup")),
        "environment_teardown_hook": _here(hook(teardown, None, "--teardown")),
    }
    spec = validated(TaskGroupSpec, present(fields) or {}, OPTIONS)
    task_fields = checked_fields(
        priority=priority,
        timeout_seconds=seconds(timeout, "--timeout"),
        retry=retry_policy(retries),
        environment=variables(env or [], os.environ),
        working_directory=None if cwd == "-" else str(Path(cwd or ".").resolve()),
    )
    plan = RunPlan(
        spec=spec,
        template=template,
        source=source,
        task_fields=task_fields,
        detach=detach,
        deadline=positive_duration(deadline, "--deadline"),
        on_interrupt=on_interrupt or ("cancel" if up else "detach"),
        max_fail=MaxFail.parse(max_fail) if max_fail is not None else None,
        output=Wanted(
            folder=keep_output,
            joblog=joblog,
            in_order=keep_order,
            tag=tag_output,
            silent=silent,
            as_json=cli.as_json,
        ),
    )
    plan.output.check()
    if dry_run:
        return _dry_run(plan, everything=all_tasks)
    plan.output.make()
    return _run(cli, plan, choose_display(progress), up=up)


app.command("run", context_settings={"allow_interspersed_args": False})(
    with_cli(with_run_statuses(run))
)


def _check_own_stack(cli: Cli, *, detach: bool, on_interrupt: str | None) -> None:
    """A stack for this run alone ends with it, and is in no place that was named.

    Raises:
        InvalidRequest: names the option that does not go with --up, and what would be right.
    """
    stays = "start a stack that stays, `mitosis up`, and leave out --up"
    for option, given in (
        ("--detach", detach),
        ("--on-interrupt detach", on_interrupt == "detach"),
    ):
        if given:
            raise InvalidRequest(
                "the stack of --up ends with this run, and no task outlives it",
                option=f"--up and {option}",
                hint=f"{stays}; or leave out {option}",
            )
    if named := cli.named_target:
        raise InvalidRequest(
            "--up starts a stack of its own, in a temporary folder",
            option=f"--up and {named}",
            hint=f"leave out --up to use the stack that {named} names; or leave out {named}",
        )


def _here(spec: dict[str, Any] | None) -> dict[str, Any] | None:
    """A hook runs in this folder too."""
    return None if spec is None else {"working_directory": str(Path.cwd()), **spec}


def _made_up(program: str) -> str:
    """A name that tells what it is and is not taken."""
    name = Path(next(iter(program.split()), "")).name
    letters = "".join(c for c in name if c.isascii() and (c.isalnum() or c in "._-"))
    return f"{letters.lstrip('._-')[:40] or 'run'}-{secrets.token_hex(3)}"


def _dry_run(plan: "RunPlan", *, everything: bool) -> int:
    """Print what would run, made by the code that makes it."""
    import json

    from mitosis.cli.run.template import shown
    from mitosis.contracts.task import command_argv, command_fields

    items = iter(plan.source.items)
    for item in items if everything else islice(items, SHOWN):
        argv = command_argv(plan.task(item))
        if plan.output.as_json:
            told = {"kind": "task", "number": item.number, **command_fields(argv)}
            typer.echo(json.dumps(told))
        else:
            typer.echo(shown(argv))
    if not everything and next(items, None) is not None:
        count = "" if plan.source.count is None else f" of {plan.source.count}"
        typer.echo(f"the first {SHOWN}{count}; --all shows every one", err=True)
    return RunExit.OK


def _run(cli: Cli, plan: "RunPlan", display: Display, *, up: bool) -> int:
    from mitosis.cli.connection import START
    from mitosis.cli.outages import GIVE_UP_AFTER, announce_outages
    from mitosis.cli.run.runner import Runner
    from mitosis.cli.validation import named
    from mitosis.client.client import Client
    from mitosis.embedded.stop_signals import StopSignals

    # What follows the events of the group says by itself that the API is away.
    announce_outages(display.say, but=() if plan.detach else ("api_unavailable",))

    async def against(url: str, token: str | None, own: StopSignals | None = None) -> int:
        async with Client(url, token, give_up_after=GIVE_UP_AFTER) as client:
            with named(OPTIONS):
                return await Runner(client, plan, display, own).run()

    async def on_own_stack() -> int:
        from mitosis.cli.run.own_stack import own_stack
        from mitosis.telemetry import configure_logging

        configure_logging("ERROR")
        async with own_stack() as (stack, signals):
            return await against(stack.connection.api_url, stack.token, signals)

    if up:
        try:
            return asyncio.run(on_own_stack())
        except KeyboardInterrupt:
            display.say("interrupted; the stack of this run is gone, and what ran on it has ended")
            return RunExit.INTERRUPTED
    try:
        return asyncio.run(against(cli.target.api_url, cli.target.token))
    except ApiUnavailable as error:
        where = [f"the address is from {cli.target.origin}", START] if "target" in vars(cli) else []
        hints = [error.facts.get("hint"), *where, "or give this run its own stack: --up"]
        error.facts["hint"] = "\n  ".join(hint for hint in hints if hint)
        raise

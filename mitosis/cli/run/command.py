"""`mitosis run`: turns the command line into a checked :class:`RunPlan` before anything is created.

Options end at the first word of the command, so the flags of the command need no escape.
"""

import asyncio
import os
import secrets
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mitosis.cli import plain_app
from mitosis.cli.context import Cli
from mitosis.cli.follow.display import Display, choose_display
from mitosis.cli.follow.exit_statuses import RunExit, RunExits
from mitosis.cli.follow.task_output import OutputOptions
from mitosis.cli.group.create import OPTION_OF_FIELD, cpu_binding, hook, present
from mitosis.cli.registration import register
from mitosis.cli.run.choosing import choose
from mitosis.cli.run.options import RunControl, RunGroupOptions, RunInputs, RunTaskOptions
from mitosis.cli.task.options import checked_fields, retry_policy, variables
from mitosis.contracts.errors import ApiUnavailable, InvalidRequest

if TYPE_CHECKING:
    from mitosis.cli.run.runner import RunPlan
    from mitosis.contracts.http import TaskGroupSpec

app = plain_app()
SHOWN = 5
OPTIONS = {**OPTION_OF_FIELD, "name": "--name"}


@register(app, "run", exits=RunExits(), context_settings={"allow_interspersed_args": False})
def run(
    cli: Cli,
    inputs: RunInputs,
    group: RunGroupOptions,
    tasks: RunTaskOptions,
    output: OutputOptions,
    control: RunControl,
) -> int:
    """Run a command over many inputs: ::: values, a file, a pipe, a range, JSON or CSV.

    {} is the input, {.} the input without its extension, {/} its base name, {//} its folder, {/.} the
    base name without extension, {#} its number, {name} a column, {1} the value of the first list. Other
    braces are not replaced, and {{}} is a literal {}. Each value remains one argument: no shell is used
    without --shell.

    The output of a task is printed when it ends, byte by byte: no newline is added. If a part of it is
    missing, the run names it and does not end with status 0.

    With --json, each result is one line of JSON on standard output, and the last line is the task group.

    The command line and the first inputs are checked before a task group is created. An invalid input
    that is read later, from a slow pipe or after thousands of inputs, ends the run with status 2 and
    cancels its task group; tasks that have already run are not undone.
    """
    from mitosis.cli.follow.task_output import check_output, make_output

    if control.up:
        _check_own_stack(cli, control)
    plan = _plan(inputs, group, tasks, output, control, as_json=cli.as_json)
    check_output(output)
    if control.dry_run:
        return _dry_run(plan, everything=control.all_tasks)
    make_output(output)
    return _run(cli, plan, choose_display(control.progress), up=control.up)


def _plan(
    inputs: RunInputs,
    group: RunGroupOptions,
    tasks: RunTaskOptions,
    output: OutputOptions,
    control: RunControl,
    *,
    as_json: bool,
) -> "RunPlan":
    """Check the whole command line and return the run that it describes.

    Raises:
        MitosisError: an option is invalid; names it.
    """
    from mitosis.cli.run.runner import MaxFail, RunPlan
    from mitosis.cli.validation import positive_duration

    template, source = choose(inputs)
    return RunPlan(
        spec=_group_spec(group, inputs.command[0]),
        template=template,
        source=source,
        task_fields=_task_fields(tasks)
        | (
            {"stream_output": True} if not control.detach and output.wanted(as_json=as_json) else {}
        ),
        detach=control.detach,
        deadline=positive_duration(control.deadline, "--deadline"),
        on_interrupt=control.on_interrupt or ("cancel" if control.up else "detach"),
        max_fail=None if control.max_fail is None else MaxFail.parse(control.max_fail),
        output=output,
        as_json=as_json,
    )


def _group_spec(group: RunGroupOptions, program: str) -> "TaskGroupSpec":
    from mitosis.cli.validation import validated
    from mitosis.contracts.http import TaskGroupSpec

    workers = len(os.sched_getaffinity(0)) if group.workers is None else group.workers
    plan = {
        "worker_count": workers,
        "max_tasks_per_worker": group.max_tasks_per_worker,
        "max_processes_per_worker": group.max_processes_per_worker,
        "cpu_binding": cpu_binding(group.pin, group.cores, group.cores_per_worker),
    }
    fields = {
        "name": _generated_name(program) if group.name is None else group.name,
        "group_name": group.user_group,
        "tags": group.tag,
        "labels": ["run"],
        "max_managers": group.max_hosts,
        "worker_allocation_plan": present(plan),
        "environment_setup_hook": _in_this_folder(hook(group.setup, None, "--setup")),
        "environment_teardown_hook": _in_this_folder(hook(group.teardown, None, "--teardown")),
        "environment_probe": _in_this_folder(hook(group.probe, None, "--probe")),
        "on_setup_failure": "end",
    }
    return validated(TaskGroupSpec, present(fields) or {}, OPTIONS)


def _task_fields(tasks: RunTaskOptions) -> dict[str, Any]:
    """Return the fields that all tasks of the run share."""
    from mitosis.cli.validation import seconds

    return checked_fields(
        priority=tasks.priority,
        timeout_seconds=seconds(tasks.timeout, "--timeout"),
        retry=retry_policy(tasks.retries),
        environment=variables(tasks.env or [], os.environ),
        working_directory=None if tasks.cwd == "-" else str(Path(tasks.cwd or ".").resolve()),
    )


def _check_own_stack(cli: Cli, control: RunControl) -> None:
    """Refuse options that contradict --up: its stack is new, and ends with the run.

    Raises:
        InvalidRequest: names the option, with a hint.
    """
    instead = "start a permanent stack with `mitosis up` and leave out --up"
    for option, given in (
        ("--detach", control.detach),
        ("--on-interrupt detach", control.on_interrupt == "detach"),
    ):
        if given:
            raise InvalidRequest(
                "the stack of --up ends with this run, and so do its tasks",
                option=f"--up and {option}",
                hint=f"{instead}; or leave out {option}",
            )
    if named := cli.api_option:
        raise InvalidRequest(
            "--up starts a new stack in a temporary folder",
            option=f"--up and {named}",
            hint=f"leave out --up to use the stack that {named} names; or leave out {named}",
        )


def _in_this_folder(spec: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the hook with this folder as its working directory."""
    return None if spec is None else {"working_directory": str(Path.cwd()), **spec}


def _generated_name(program: str) -> str:
    """Return a new name, made of the program and random digits."""
    name = Path(next(iter(program.split()), "")).name
    letters = "".join(c for c in name if c.isascii() and (c.isalnum() or c in "._-"))
    return f"{letters.lstrip('._-')[:40] or 'run'}-{secrets.token_hex(3)}"


def _dry_run(plan: "RunPlan", *, everything: bool) -> int:
    """Print the argv of tasks, built by the code that the run uses."""
    import json

    import msgspec

    from mitosis.cli.run.template import format_argv
    from mitosis.contracts.task import TaskSpec, command_argv, command_fields

    items = iter(plan.source.items)
    for item in items if everything else islice(items, SHOWN):
        argv = command_argv(msgspec.json.decode(plan.build_task(item), type=TaskSpec))
        if plan.as_json:
            line = {"kind": "task", "number": item.number, **command_fields(argv)}
            typer.echo(json.dumps(line))
        else:
            typer.echo(format_argv(argv))
    if not everything and next(items, None) is not None:
        count = "" if plan.source.count is None else f" of {plan.source.count}"
        typer.echo(f"only the first {SHOWN}{count} are shown; use --all for all", err=True)
    return RunExit.OK


def _run(cli: Cli, plan: "RunPlan", display: Display, *, up: bool) -> int:
    from mitosis.cli.connection import START
    from mitosis.cli.long_client import client_for_long
    from mitosis.cli.outages import Outages
    from mitosis.cli.run.runner import Runner
    from mitosis.cli.validation import named
    from mitosis.embedded.stop_signals import StopSignals

    outages = Outages(display.say)

    async def against(
        url: str, token: str | None, ca_file: Path | None, own: StopSignals | None = None
    ) -> int:
        async with client_for_long(url, token, ca_file, outages) as client:
            with named(OPTIONS):
                return await Runner(client, plan, display, own, outages).run()

    async def on_own_stack() -> int:
        from mitosis.cli.run.own_stack import own_stack
        from mitosis.telemetry import configure_logging

        configure_logging("ERROR")
        async with own_stack() as (stack, signals):
            return await against(stack.address, None, None, signals)

    if up:
        try:
            return asyncio.run(on_own_stack())
        except KeyboardInterrupt:
            display.say("interrupted; the stack of this run and its tasks have ended")
            return RunExit.INTERRUPTED
    try:
        to = cli.target
        return asyncio.run(against(to.address, to.token, to.ca_file))
    except ApiUnavailable as error:
        where = [f"the address is from {cli.target.origin}", START] if "target" in vars(cli) else []
        hints = [error.facts.get("hint"), *where, "or start a stack for this run: --up"]
        error.facts["hint"] = "\n  ".join(hint for hint in hints if hint)
        raise

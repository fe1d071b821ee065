"""`mitosis simulate`: what scheduling policies come to on a workload, without any host."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mitosis.cli import plain_app
from mitosis.cli.context import Cli
from mitosis.cli.registration import register
from mitosis.cli.rendering import Table
from mitosis.contracts.errors import InvalidRequest
from mitosis.scheduling.simulation.comparison import PolicyName

if TYPE_CHECKING:
    from mitosis.scheduling.policy import Policy
    from mitosis.scheduling.simulation.result import Result
    from mitosis.scheduling.simulation.workload import Workload

app = plain_app()


@register(app, "simulate")
def simulate(
    cli: Cli,
    hosts: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Hosts of the mixed workload (100).")
    ] = None,
    days: Annotated[
        float | None, typer.Option(min=0.01, max=366, help="Its length in days (1).")
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(min=0.01, max=10, help="Work that comes, as a share of all host time (0.65)."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same workload (1).")
    ] = None,
    workload: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Simulate the workload of a file (- = stdin) instead."),
    ] = None,
    policy: Annotated[
        list[PolicyName] | None,
        typer.Option(help="Only this policy; repeatable. All four without it."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the workload to a file.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the figures into an SVG file.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Simulate nothing: write what the task groups here have run."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="How far back --record goes, as in 2d (7d).")
    ] = None,
) -> None:
    """Simulate scheduling policies on a mixed or recorded workload, and compare what they come to.

    `rules` are the rules of the product with the settings of this deployment (`mitosis config show`), so
    MITOSIS_SCHEDULING__LEASE_DURATION_SECONDS=7200 shows what that setting would change.
    """
    from mitosis.cli.validation import positive_duration

    mix = {"hosts": hosts, "days": days, "load": load, "seed": seed}
    given = {name: value for name, value in mix.items() if value is not None}
    span = positive_duration(since or "7d", "--since")
    if record is not None and span is not None:
        others = {"workload": workload, "policy": policy, "save": save, "plot": plot}
        _refuse_beside("--record", {**given, **others})
        _record(cli, record, span)
        return
    if since is not None:
        raise InvalidRequest("is only for --record", option="--since")
    if workload is not None:
        _refuse_beside("--workload", given)
    made = _workload(workload, given)
    if not made.groups:
        raise InvalidRequest(
            "no task group begins in this time on so few hosts: there is nothing to compare"
            if workload is None
            else f"{workload} has no task groups: there is nothing to compare",
            option="--days" if workload is None else "--workload",
        )
    if save is not None:
        _save(made, save)
    results = _simulated(made, policy or list(PolicyName), _rules(cli))
    if plot is not None:
        from mitosis.scheduling.simulation.plot import svg

        _write(plot, [svg(results).encode()], "--plot")
    cli.output.table(_table(results))


def _refuse_beside(option: str, others: Mapping[str, object]) -> None:
    beside = [name for name, value in others.items() if value]
    if beside:
        raise InvalidRequest(f"cannot be used with --{beside[0]}", option=option)


def _workload(path: Path | None, mix: Mapping[str, Any]) -> "Workload":
    from mitosis.cli.input_files import read_bytes
    from mitosis.contracts.bounded_files import MOST_TASKS_BYTES
    from mitosis.scheduling.simulation.recording import read_workload
    from mitosis.scheduling.simulation.synthetic import Mix, mixed

    if path is None:
        return mixed(Mix(**{"days": 1.0, **mix}))
    lines = read_bytes(path, "--workload", MOST_TASKS_BYTES).splitlines()
    try:
        return read_workload(lines)
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error}", option="--workload") from None


def _simulated(
    workload: "Workload", names: Sequence[PolicyName], rules: "Policy"
) -> Mapping[str, "Result"]:
    from mitosis.cli.simulate.processes import simulated
    from mitosis.scheduling.simulation.comparison import policies

    known = policies(rules)
    return simulated(workload, {name.value: known[name] for name in names})


def _rules(cli: Cli) -> "Policy":
    """Return the rules with the settings of the deployment."""
    from mitosis.cli.stack.whole_stack import store_options
    from mitosis.store.leases.lease_terms import policy_of

    return policy_of(store_options(cli.settings, ""))


def _table(results: Mapping[str, "Result"]) -> Table:
    from mitosis.scheduling.simulation.table import rows_of

    return Table(
        data={name: asdict(result) for name, result in results.items()},
        columns=("", *results),
        rows=[tuple(row) for row in rows_of(results)],
        ids=list(results),
        empty="",
    )


def _record(cli: Cli, path: Path, span: timedelta) -> None:

    from mitosis.cli.simulate.history import recorded

    now = datetime.now(UTC)
    with cli.client() as client:
        workload = recorded(client, now - span, now)
    _save(workload, path)
    tasks = sum(tasks.size for tasks in workload.tasks)
    cli.output.note(
        f"{len(workload.hosts)} hosts, {len(workload.groups)} task groups and {tasks} tasks are in {path};"
        f" next: mitosis simulate --workload {path}"
    )


def _save(workload: "Workload", path: Path) -> None:
    from mitosis.scheduling.simulation.recording import workload_lines

    _write(path, workload_lines(workload), "--save")


def _write(path: Path, parts: Iterable[bytes], option: str) -> None:
    try:
        with path.open("wb") as file:
            file.writelines(parts)
    except OSError as error:
        raise InvalidRequest(f"cannot write {path}: {error.strerror}", option=option) from None

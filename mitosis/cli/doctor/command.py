"""`mitosis doctor`: runs the checks and shows each as ok, warn or fail, with advice."""

from mitosis.cli.context import Cli
from mitosis.cli.exit import ExitStatus
from mitosis.cli.registration import typer_function
from mitosis.cli.rendering import Table


@typer_function
def doctor(cli: Cli) -> int:
    """Check this host and the servers.

    Exit status: 0 if no check fails (there may be warnings), 1 otherwise.
    """
    from mitosis.cli.doctor.host import host_checks
    from mitosis.cli.doctor.servers import server_checks

    checks = [*host_checks(cli.settings), *server_checks(cli.settings)]
    failed = sum(check.state == "fail" for check in checks)
    cli.output.table(
        Table(
            data={"ok": not failed, "checks": [check.as_json() for check in checks]},
            columns=("", "check", "found"),
            rows=[(check.state, check.name, check.found) for check in checks],
            ids=[check.name for check in checks if check.state == "fail"],
            empty="",
            prose="found",
        )
    )
    for check in checks:
        if check.advice:
            cli.output.note(f"\n{check.state}: {check.name}: {check.found}\n  {check.advice}")
    cli.output.note(f"\n{failed} of {len(checks)} checks failed")
    return ExitStatus.PROBLEM_FOUND if failed else ExitStatus.OK

"""Write docs/reference/errors.md from the error tree and the exit statuses; ``--check`` only compares."""

import inspect
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import mitosis.embedded.errors  # noqa: E402 - after the path; these add classes to the tree
import mitosis.execution.pool  # noqa: E402
import mitosis.ipc.codec  # noqa: E402
import mitosis.settings  # noqa: E402
import mitosis.worker.zygote_protocol  # noqa: E402, F401
from mitosis.cli.exit import ExitStatus, status_of  # noqa: E402
from mitosis.cli.follow.exit_statuses import MEANING  # noqa: E402
from mitosis.contracts.errors import MitosisError  # noqa: E402
from tools.pages import markdown, member_texts, run_generator, table  # noqa: E402

PAGE = ROOT / "docs/reference/errors.md"
HEAD = """\
# Errors

Generated from `mitosis/contracts/errors.py` and `mitosis/cli/exit.py` by `make docs`; do not edit.

Every error has a stable code. The HTTP API answers with an RFC 9457 problem document
(`application/problem+json`) whose `code` is the one below and whose `type` is `urn:mitosis:error:<code>`;
`detail` is for people, further keys are for programs: `field` names the value that is wrong, `allowed` the
events that a state allows. The command line prints `error: …` on standard error, or with `--json` the same
document with `option` and `exit_status` added, and ends with the exit status of its class.

*Retry* says whether doing the same again can help; the SDK then does so by itself where that is safe.
"""


def page() -> str:
    """The whole document."""
    return (
        f"{HEAD}\n{_errors()}\n## Exit statuses of `mitosis`\n\n{_statuses()}\n"
        f"## Exit statuses of `mitosis run` and `mitosis watch`\n\n{_statuses_of_runs()}"
    )


def _errors() -> str:
    rows = [
        (
            f"`{cls.code}`",
            str(cls.http_status),
            f"{status_of(cls.__new__(cls)):d}",
            "yes" if cls.retryable else "no",
            markdown(inspect.getdoc(cls)),
        )
        for cls in _tree(MitosisError)
        if "code" in vars(cls)
    ]
    return table(("Code", "HTTP", "Exit", "Retry", "Meaning"), rows)


def _tree(cls: type[MitosisError]) -> list[type[MitosisError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _tree(child))]


def _statuses() -> str:
    texts = member_texts(ExitStatus)
    rows = [(f"{status:d}", f"`{status.name}`", texts[status.name]) for status in ExitStatus]
    return table(("Status", "Name", "Meaning"), rows)


def _statuses_of_runs() -> str:
    rows = [(f"{status:d}", f"`{status.name}`", text) for status, text in MEANING.items()]
    return table(("Status", "Name", "Meaning"), rows)


if __name__ == "__main__":
    sys.exit(run_generator(PAGE, page()))

"""Log messages are constant event names (`workers.starting`): they can be searched for and counted."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sources import parsed_text

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("mitosis", "workflows", "activities", "manager_agent", "api")
MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
LOGGERS = re.compile(r"(^|[._])log(ger)?$")
EVENT = re.compile(r"[a-z_]+(\.[a-z_]+)+")


def wrong_events(source: str) -> Iterator[str]:
    """The log calls of a module whose message is not a constant dotted name."""
    for call in ast.walk(parsed_text(source)):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr not in LEVELS or not LOGGERS.search(ast.unparse(call.func.value)):
            continue
        match call.args:
            case [ast.Constant(value=str(text))] if EVENT.fullmatch(text):
                continue
        yield ast.unparse(call)


def test_every_log_message_is_the_name_of_an_event() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {call}"
        for path in MODULES
        for call in wrong_events(path.read_text())
    }
    assert found == set()


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("log.info('workers.starting', extra={'epoch': 1})", False),
        ("workflow.logger.warning('signal.dropped')", False),
        ("log.info('workers starting')", True),
        ("_log.error('started')", True),
        ("self._logger.error(f'worker.{slot}')", True),
        ("log.info('worker.died %s', pid)", True),
        ("console.info('workers starting')", False),
    ],
)
def test_what_counts_as_the_name_of_an_event(call: str, wrong: bool) -> None:
    assert bool(list(wrong_events(call))) is wrong

"""A pytest plugin that writes which tests ran, how they ended, and the requirement ids they name.

A full run writes ``.spec/report.json``, one of the long forms ``.spec/long.json``; ``make spec`` reads
both. Any other run (a selection, an interruption, a collection error, a crashed worker) writes
``.spec/partial.json`` beside them, so that it never passes for a full one. Under pytest-xdist only the
controller writes; it sees the reports of every worker.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

PROPERTY = "spec_ids"
LONG_FORMS = ["tests/long"]
# A later phase never improves on an earlier one: a teardown error spoils a passed call.
SEVERITY = ("passed", "skipped", "xfailed", "xpassed", "failed")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SpecReport(config), "mitosis-spec-report")


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Note the ids on the item: its properties travel with every report, also between processes."""
    ids = [requirement for mark in item.iter_markers("spec") for requirement in mark.args]
    item.user_properties.append((PROPERTY, sorted(set(ids))))


class SpecReport:
    """Collects the outcomes of one run and writes them at its end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._outcomes: dict[str, str] = {}
        self._ids: dict[str, list[str]] = {}
        self._broken: str | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        if PROPERTY not in properties:
            self._broken = f"{report.nodeid} crashed its process"
        else:
            self._ids[report.nodeid] = list(properties[PROPERTY])  # type: ignore[call-overload]
        outcome = _outcome(report)
        before = self._outcomes.get(report.nodeid, "passed")
        self._outcomes[report.nodeid] = max(before, outcome, key=SEVERITY.index)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._broken = f"{report.nodeid} could not be collected"

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        if items:
            self._broken = f"{len(items)} tests deselected"

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self._config.option.collectonly:
            return
        why_partial = self._why_partial(session, exitstatus)
        full = "long.json" if self._is_of_long_forms() else "report.json"
        name = "partial.json" if why_partial else full
        report = {
            "complete": why_partial is None,
            "why_partial": why_partial,
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "tests": [
                {"test": test, "ids": self._ids.get(test, []), "outcome": outcome}
                for test, outcome in sorted(self._outcomes.items())
            ],
        }
        _write(self._config.rootpath / ".spec" / name, report)

    def _why_partial(self, session: pytest.Session, exitstatus: int) -> str | None:
        """Why this run does not count as the full one, or None when it does."""
        option = self._config.option
        overridden = [entry.partition("=")[0] for entry in option.override_ini or ()]
        if "testpaths" in overridden and not self._is_of_long_forms():
            return "selected by testpaths"
        if self._config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
            return "only some paths"
        for name in ("keyword", "markexpr", "lf", "deselect", "ignore", "ignore_glob"):
            if getattr(option, name, None):
                return f"selected by {name}"
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return f"ended with exit status {int(exitstatus)}"
        if session.shouldfail or session.shouldstop:
            return "stopped early"
        return self._broken

    def _is_of_long_forms(self) -> bool:
        return bool(self._config.getini("testpaths") == LONG_FORMS)


def _outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    return report.outcome


def _write(path: Path, report: dict[str, Any]) -> None:
    """Replace the file at once, so that a reader never sees half of it."""
    path.parent.mkdir(exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(report, indent=1))
    scratch.replace(path)

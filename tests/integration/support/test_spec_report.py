"""The plugin that reports a test run, driven by real pytest runs in a scratch folder."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.checkout import ROOT

PLUGIN = ROOT / "tests" / "support" / "spec_report.py"

TESTS = """
import pytest

@pytest.mark.spec("S000-01", "S000-02")
def test_passes(): pass

@pytest.mark.spec("S000-03")
def test_fails(): assert False

@pytest.mark.spec("S000-04")
@pytest.mark.skip(reason="no reason")
def test_is_skipped(): pass

@pytest.mark.spec("S000-05")
@pytest.mark.xfail
def test_is_expected_to_fail(): assert False

@pytest.fixture
def breaks_down():
    yield
    raise RuntimeError

@pytest.mark.spec("S000-06")
def test_passes_but_breaks_down(breaks_down): pass
"""

OUTCOMES = {
    "passes": (["S000-01", "S000-02"], "passed"),
    "fails": (["S000-03"], "failed"),
    "is_skipped": (["S000-04"], "skipped"),
    "is_expected_to_fail": (["S000-05"], "xfailed"),
    "passes_but_breaks_down": (["S000-06"], "failed"),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(PLUGIN, tmp_path / "spec_report.py")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text("pytest_plugins = ['spec_report']\n")
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\ntestpaths = tests\npythonpath = .\nmarkers = spec(*ids): ids\n"
        "addopts = --strict-markers --strict-config\n"
    )
    return tmp_path


def run_pytest(project: Path, *arguments: str) -> None:
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "xdist", *arguments]
    subprocess.run(command, cwd=project, env=environment, capture_output=True, check=False)


def load(project: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((project / ".spec" / name).read_text())
    return loaded


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_full_run_reports_every_test(project: Path, arguments: tuple[str, ...]) -> None:
    run_pytest(project, *arguments)
    report = load(project, "report.json")
    assert report["complete"]
    assert {
        test["test"].partition("::test_")[2]: (test["ids"], test["outcome"])
        for test in report["tests"]
    } == OUTCOMES


def test_a_full_run_of_the_long_forms_has_a_report_of_its_own(project: Path) -> None:
    (project / "tests" / "test_it.py").rename(project / "tests" / "test_other.py")
    (project / "tests" / "long").mkdir()
    (project / "tests" / "long" / "test_it.py").write_text("def test_it(): pass\n")
    run_pytest(project, "-o", "testpaths=tests/long")
    assert not (project / ".spec" / "report.json").exists()
    assert [test["test"] for test in load(project, "long.json")["tests"]] == [
        "tests/long/test_it.py::test_it"
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("tests/test_it.py",), "only some paths"),
        (("-k", "passes"), "selected by keyword"),
        (("--lf",), "selected by lf"),
        (("-o", "testpaths=tests/test_it.py"), "selected by testpaths"),
        (("-x",), "stopped early"),
        (("-x", "-n", "2"), "ended with exit status 2"),
    ],
)
def test_a_partial_run_never_passes_for_the_full_one(
    project: Path, arguments: tuple[str, ...], why: str
) -> None:
    run_pytest(project, *arguments)
    assert not (project / ".spec" / "report.json").exists()
    partial = load(project, "partial.json")
    assert not partial["complete"]
    assert partial["why_partial"].startswith(why)


def test_a_crashed_worker_makes_the_run_partial(project: Path) -> None:
    (project / "tests" / "test_it.py").write_text("import os\ndef test_it(): os._exit(3)\n")
    run_pytest(project, "-n", "1")
    assert not (project / ".spec" / "report.json").exists()
    assert "crashed its process" in load(project, "partial.json")["why_partial"]


def test_a_file_that_cannot_be_collected_makes_the_run_partial(project: Path) -> None:
    (project / "tests" / "test_other.py").write_text("import nowhere_to_be_found\n")
    run_pytest(project)
    assert not (project / ".spec" / "report.json").exists()


def test_looking_at_the_tests_writes_nothing(project: Path) -> None:
    run_pytest(project, "--collect-only")
    assert not (project / ".spec").exists()

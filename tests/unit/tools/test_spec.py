"""``make spec``: what counts as proven, and what is an error."""

import json
from pathlib import Path

import pytest

from tools import spec
from tools.spec import Outcome, Requirement, SpecError, Verdict

LINES = """\
# Specification

- **S000-01** Proven by tests.
- **S000-02** Nobody tests this.
- **S000-03** The naming.
  document: the [names](names.md)
- **C-01** (S000-02) A decision.
  not applicable: there is no such thing here
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "names.md").write_text("names\n")
    (tmp_path / "specification.md").write_text(LINES)
    return tmp_path


def verdict_of(*outcomes: str) -> Verdict:
    tests = [Outcome(f"test_{n}", ("S000-01",), how) for n, how in enumerate(outcomes)]
    return spec.judge({"S000-01": Requirement("S000-01")}, tests)["S000-01"]


def test_a_line_is_proven_when_its_tests_ran_and_all_passed() -> None:
    assert verdict_of("passed") is Verdict.PROVEN
    assert verdict_of("passed", "passed") is Verdict.PROVEN


def test_a_line_without_a_test_is_open() -> None:
    assert verdict_of() is Verdict.OPEN


@pytest.mark.parametrize("outcome", ["failed", "skipped", "xfailed", "xpassed"])
def test_one_test_that_did_not_pass_leaves_the_line_open(outcome: str) -> None:
    assert verdict_of(outcome) is Verdict.OPEN
    assert verdict_of("passed", outcome) is Verdict.OPEN


def test_an_unknown_id_is_an_error() -> None:
    with pytest.raises(SpecError, match="test_x names S999-01"):
        spec.judge({}, [Outcome("test_x", ("S999-01",), "passed")])


def test_marked_lines_count_apart_and_a_test_still_proves_them(folder: Path) -> None:
    lines = spec.parse_specification(LINES, folder)
    assert spec.judge(lines, []) == {
        "S000-01": Verdict.OPEN,
        "S000-02": Verdict.OPEN,
        "S000-03": Verdict.DOCUMENT,
        "C-01": Verdict.NOT_APPLICABLE,
    }
    proven = spec.judge(lines, [Outcome("t", ("S000-03",), "passed")])
    assert proven["S000-03"] is Verdict.PROVEN


def test_a_document_must_exist_and_be_linked(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"names\.md does not exist"):
        spec.parse_specification(LINES, tmp_path)
    with pytest.raises(SpecError, match="name the document by a link"):
        spec.parse_specification("- **S000-01** a\n  document: somewhere\n", tmp_path)


def test_a_doubled_id_or_a_stray_mark_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="line 2: S000-01 is there twice"):
        spec.parse_specification("- **S000-01** a\n- **S000-01** b\n", tmp_path)
    with pytest.raises(SpecError, match="line 1: a mark without"):
        spec.parse_specification("  not applicable: why\n", tmp_path)


def run_main(folder: Path, report: object | None) -> int:
    path = folder / "report.json"
    if report is not None:
        path.write_text(json.dumps(report))
    specification = folder / "specification.md"
    return spec.main(
        ["--report", str(path), "--specification", str(specification), "--list", "open"]
    )


def a_report(*tests: tuple[str, str], why_partial: str | None = None) -> dict[str, object]:
    return {
        "complete": why_partial is None,
        "why_partial": why_partial,
        "finished_at": "2026-01-01T00:00:00+00:00",
        "tests": [{"test": "t", "ids": [key], "outcome": how} for key, how in tests],
    }


def test_main_prints_the_counts_and_the_open_ids(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(folder, a_report(("S000-01", "passed"))) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "full run of 1 tests, finished 2026-01-01T00:00:00+00:00"
    assert printed[1] == "without the long forms: run `make test-long`"
    assert printed[2].split() == [
        "part",
        "proven",
        "open",
        "document",
        "not",
        "applicable",
        "lines",
    ]
    assert printed[-2].split() == ["all", "1", "1", "1", "1", "4"]
    assert printed[-1] == "open (1): S000-02"


def test_a_line_that_fails_in_the_long_forms_is_open(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "long.json").write_text(json.dumps(a_report(("S000-01", "failed"))))
    assert run_main(folder, a_report(("S000-01", "passed"))) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(",")[0] for line in printed[:2]] == ["full run of 1 tests"] * 2
    assert printed[-1] == "open (2): S000-01 S000-02"


def test_main_says_that_a_partial_run_is_partial(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(folder, a_report(why_partial="only some paths")) == 0
    assert capsys.readouterr().out.startswith("PARTIAL run (only some paths)")


def test_main_fails_without_a_report_and_on_an_unknown_id(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_main(folder, None) == 2
    assert run_main(folder, a_report(("S000-99", "passed"))) == 2
    errors = capsys.readouterr().err.splitlines()
    assert "run `make test` first" in errors[0]
    assert "S000-99, which does not exist" in errors[1]


def test_our_own_specification_is_well_formed() -> None:
    path = Path(spec.__file__).parent.parent / "docs" / "specification.md"
    lines = spec.parse_specification(path.read_text(), path.parent)
    counts = {part: sum(key.startswith(part) for key in lines) for part in PARTS}
    assert counts == PARTS


# How many lines each part has: none may get lost in an edit.
PARTS = {"C-": 36, "S000-": 194, "S001-": 52, "S002-": 285, "S003-": 65, "S004-": 71}

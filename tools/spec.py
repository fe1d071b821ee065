"""Count the requirement lines that the last full test runs have proven.

Reads docs/specification.md and the reports that tests/support/spec_report.py writes at the end of
`make test` and of `make test-long`. It runs nothing. Exit status: 0, or 2 when there is no report, a
test names an id that the specification does not have, or the specification itself is malformed.
"""

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

LINE = re.compile(r"^- \*\*(?P<id>[SC](?:\d{3})?-\d{2,3})\*\* \S")
MARK = re.compile(r"^  (?P<kind>document|not applicable): (?P<reason>.+)$")
LINK = re.compile(r"\]\((?P<path>[^)#]+)(?:#[^)]*)?\)")


class SpecError(Exception):
    """The specification, the report, or the ids in the tests cannot be trusted."""


class Verdict(Enum):
    """What is known about one requirement line."""

    PROVEN = "proven"
    OPEN = "open"
    DOCUMENT = "document"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One line of the specification; ``mark`` is set when no test can prove it."""

    id: str
    mark: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test of the run: the ids it names, and how it ended (pytest's words)."""

    name: str
    ids: tuple[str, ...]
    outcome: str


def parse_specification(text: str, folder: Path) -> dict[str, Requirement]:
    """Read the requirement lines. ``folder`` is where the links of the document start.

    Raises:
        SpecError: An id is there twice, a mark belongs to no line, or a named document is missing.
    """
    found: dict[str, Requirement] = {}
    last: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if match := LINE.match(line):
            last = match["id"]
            if last in found:
                raise SpecError(f"line {number}: {last} is there twice")
            found[last] = Requirement(last)
        elif match := MARK.match(line):
            if last is None or found[last].mark is not None:
                raise SpecError(f"line {number}: a mark without a requirement line above it")
            found[last] = Requirement(last, Verdict(match["kind"]))
            if found[last].mark is Verdict.DOCUMENT:
                _check_document(match["reason"], folder, number)
        else:
            last = None
    return found


def _check_document(reason: str, folder: Path, number: int) -> None:
    links = [match["path"] for match in LINK.finditer(reason)]
    if not links:
        raise SpecError(f"line {number}: name the document by a link")
    for link in links:
        if not (folder / link).is_file():
            raise SpecError(f"line {number}: {link} does not exist")


def read_outcomes(report: Mapping[str, Any]) -> list[Outcome]:
    """The tests of a report written by tests/support/spec_report.py."""
    return [Outcome(test["test"], tuple(test["ids"]), test["outcome"]) for test in report["tests"]]


def judge(
    requirements: Mapping[str, Requirement], outcomes: Sequence[Outcome]
) -> dict[str, Verdict]:
    """Decide every line: proven = at least one test with the id ran, and all of them passed.

    Raises:
        SpecError: A test names an id that is not in the specification.
    """
    by_id: dict[str, list[str]] = defaultdict(list)
    for test in outcomes:
        for requirement_id in test.ids:
            if requirement_id not in requirements:
                raise SpecError(f"{test.name} names {requirement_id}, which does not exist")
            by_id[requirement_id].append(test.outcome)
    return {
        requirement.id: _verdict(requirement, by_id[requirement.id])
        for requirement in requirements.values()
    }


def _verdict(requirement: Requirement, outcomes: Sequence[str]) -> Verdict:
    if outcomes:
        passed = all(outcome == "passed" for outcome in outcomes)
        return Verdict.PROVEN if passed else Verdict.OPEN
    return requirement.mark or Verdict.OPEN


def summary(verdicts: Mapping[str, Verdict]) -> str:
    """A table with one row per part of the specification, and the total."""
    rows = [["part", *(verdict.value for verdict in Verdict), "lines"]]
    parts = sorted({requirement_id.split("-")[0] for requirement_id in verdicts})
    for part in (*parts, ""):
        counts = Counter(v for key, v in verdicts.items() if key.startswith(part))
        rows.append([part or "all", *(str(counts[v]) for v in Verdict), str(counts.total())])
    return "\n".join(f"{row[0]:4}" + "".join(f"{cell:>16}" for cell in row[1:]) for row in rows)


def listing(verdicts: Mapping[str, Verdict], wanted: Verdict) -> str:
    """The ids with one verdict, in the order of the specification."""
    ids = [key for key, verdict in verdicts.items() if verdict is wanted]
    return f"{wanted.value} ({len(ids)}): {' '.join(ids)}"


def _load(path: Path) -> dict[str, Any]:
    try:
        loaded: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise SpecError(f"no report at {path}: run `make test` first") from None
    return loaded


def _headline(report: Mapping[str, Any]) -> str:
    kind = "full run" if report["complete"] else f"PARTIAL run ({report['why_partial']})"
    return f"{kind} of {len(report['tests'])} tests, finished {report['finished_at']}"


def main(arguments: Sequence[str]) -> int:
    root = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", type=Path, default=root / ".spec" / "report.json")
    parser.add_argument("--specification", type=Path, default=root / "docs" / "specification.md")
    parser.add_argument("--list", choices=[v.value for v in Verdict], help="print these ids")
    options = parser.parse_args(arguments)
    try:
        text = options.specification.read_text()
        requirements = parse_specification(text, options.specification.parent)
        reports = [_load(options.report)]
        long_forms = options.report.with_name("long.json")
        if long_forms.exists():
            reports.append(_load(long_forms))
        outcomes = [outcome for report in reports for outcome in read_outcomes(report)]
        verdicts = judge(requirements, outcomes)
    except SpecError as error:
        print(f"spec: {error}", file=sys.stderr)
        return 2
    for report in reports:
        print(_headline(report))
    if len(reports) == 1:
        print("without the long forms: run `make test-long`")
    print(summary(verdicts))
    if options.list:
        print(listing(verdicts, Verdict(options.list)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

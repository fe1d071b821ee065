"""Break the guards one by one, in a worktree of their own, and name those that no test notices.

What is known about the guards of this commit is kept in .mutate.json, so that a run that was interrupted
goes on where it stopped. Exit status: 1 if fewer than 95 % of the guards are noticed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".mutate.json"
LEAST = 0.95
TEST_SECONDS = 300
TESTS_FAILED = 1
"""Exit status of pytest; others say that the tests did not run."""


class Guard(NamedTuple):
    """A row of guards.toml."""

    name: str
    path: str
    text: str
    broken: str
    tests: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="guards with this in their name")
    parser.add_argument("--again", action="store_true", help="forget earlier runs of this commit")
    asked = parser.parse_args()
    commit = _git("rev-parse", "HEAD")
    known = {} if asked.again else _known(commit)
    table = tomllib.loads(Path(__file__).with_name("guards.toml").read_text())
    rows = [Guard(**row) for row in table["guard"]]
    guards = [guard for guard in rows if asked.only in guard.name]
    missing = [guard for guard in guards if guard.name not in known]
    if missing:
        with _worktree(commit) as tree:
            for guard in missing:
                known[guard.name] = _try(tree, guard)
                KEPT.write_text(json.dumps({"commit": commit, "outcomes": known}, indent=1))
                print(f"{known[guard.name]:9} {guard.name}", flush=True)
    return _summary(guards, known)


def _summary(guards: Sequence[Guard], known: dict[str, str]) -> int:
    survivors = [guard for guard in guards if known[guard.name] != "noticed"]
    share = 1 - len(survivors) / max(1, len(guards))
    print(f"\n{len(guards) - len(survivors)} of {len(guards)} guards are noticed ({share:.0%})")
    for guard in survivors:
        print(f"  {known[guard.name]}: {guard.name} ({guard.path})")
    return 0 if share >= LEAST else 1


def _known(commit: str) -> dict[str, str]:
    if not KEPT.exists():
        return {}
    kept = json.loads(KEPT.read_text())
    return dict(kept["outcomes"]) if kept["commit"] == commit else {}


def _try(tree: Path, guard: Guard) -> str:
    """Return whether the tests of a guard turn red when it is broken."""
    file = tree / guard.path
    text = file.read_text()
    if text.count(guard.text) != 1:
        return "not found"
    file.write_text(text.replace(guard.text, guard.broken))
    argv = [".venv/bin/python", "-m", "pytest", "-q", "-x", "-n", "0", *guard.tests.split()]
    try:
        done = subprocess.run(
            argv, cwd=tree, capture_output=True, check=False, timeout=TEST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "noticed"  # what hangs is no pass
    finally:
        file.write_text(text)
    if done.returncode == TESTS_FAILED:
        return "noticed"
    return "survived" if done.returncode == 0 else f"status {done.returncode}"


@contextmanager
def _worktree(commit: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mutate-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        try:
            subprocess.run(["make", "--quiet", "setup"], cwd=tree, check=True)
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

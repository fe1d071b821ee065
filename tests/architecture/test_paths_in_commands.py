"""Every test that the CI script or a make target names is there: pytest runs nothing when it is not."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
WORD = re.compile(r"tests/[\w./{},-]+")


def named_tests(script: str) -> list[str]:
    """The paths below `tests/` that a shell script names, its braces expanded by the shell."""
    words = [word.rstrip(".,") for word in WORD.findall(script)]
    echoed = subprocess.run(
        ["bash", "-c", f"echo {' '.join(words)}"], capture_output=True, text=True, check=True
    )
    return echoed.stdout.split()


@pytest.mark.parametrize("script", [".ci/run", "Makefile"])
def test_each_named_test_exists(script: str) -> None:
    named = named_tests((ROOT / script).read_text())
    assert len(named) > 3
    assert [path for path in named if not (ROOT / path).exists()] == []

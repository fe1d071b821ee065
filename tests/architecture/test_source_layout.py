"""Habits of the source tree: telling module names, a word at the top of every module."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("mitosis", "workflows", "activities", "manager_agent", "api")
MODULES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]

# A module with such a name is where code goes that nobody has thought about.
VAGUE_NAMES = {"utils", "common", "helpers", "base", "misc", "types", "core"}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_module_has_a_vague_name() -> None:
    assert [named(path) for path in MODULES if path.stem in VAGUE_NAMES] == []


def says_what_it_owns(path: Path) -> bool:
    text = path.read_text()
    return text.startswith(('"""', 'r"""')) or not text.strip()


def test_every_module_says_what_it_owns() -> None:
    assert [named(path) for path in MODULES if not says_what_it_owns(path)] == []


# No annotation in these is resolved at run time; they import what is heavy when it is needed.
RESOLVE_NOTHING = (
    "mitosis/__init__.py",
    "mitosis/cli/",
    "mitosis/client/job_calls.py",
    "mitosis/jobs/building.py",
)


def test_no_import_is_for_the_type_checker_only() -> None:
    """pydantic, FastAPI and Temporal resolve annotations at run time: such a name fails there."""
    checked = [path for path in MODULES if not named(path).startswith(RESOLVE_NOTHING)]
    assert [named(path) for path in checked if "TYPE_CHECKING" in path.read_text()] == []

"""Packaging rules that no tool checks: the lock is complete and names no registry, one public API."""

import re
import tomllib
from pathlib import Path

import mitosis
import mitosis.client.outcome
import mitosis.contracts.errors
from mitosis import client, contracts

ROOT = Path(__file__).resolve().parent.parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

PUBLIC_NAMES = [
    "AlreadyExists",
    "Client",
    "Conflict",
    "CpuBinding",
    "HookSpec",
    "InvalidRequest",
    "Job",
    "JobRun",
    "MitosisError",
    "NotFound",
    "PermissionDenied",
    "RetryPolicy",
    "SetupFailed",
    "SyncClient",
    "SyncJobRun",
    "SyncTaskGroup",
    "TaskContext",
    "TaskFailed",
    "TaskGroup",
    "TaskGroupClosed",
    "TaskGroupSpec",
    "TaskNotRun",
    "TaskOptions",
    "TaskSubmission",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "WorkerAllocationPlan",
    "current_task",
    "handler",
    "step",
]


def test_the_public_names_are_these_and_all_importable() -> None:
    assert sorted(mitosis.__all__) == PUBLIC_NAMES
    for name in PUBLIC_NAMES:
        assert getattr(mitosis, name) is not None


GUIDES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if page.name not in ("design-notes.md", "tour.md", "specification.md")  # about the code itself
]


def test_every_error_that_a_guide_names_can_be_imported_and_caught() -> None:
    errors = {
        name
        for module in (contracts.errors, client.outcome)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    named = {name for page in GUIDES for name in re.findall(r"`(\w+)`", page.read_text())}
    assert {"InvalidRequest", "TaskNotRun"} <= named & errors <= set(mitosis.__all__)


def test_the_lock_names_no_registry() -> None:
    assert "://" not in LOCK
    assert "--index" not in LOCK
    assert "--find-links" not in LOCK


def test_every_pin_has_a_hash() -> None:
    pins = re.split(r"\n(?=\S)", LOCK.strip())
    assert pins
    assert [pin for pin in pins if "--hash=sha256:" not in pin and not pin.startswith("#")] == []


def test_the_lock_has_every_dependency() -> None:
    declared = PYPROJECT["project"]["dependencies"] + PYPROJECT["dependency-groups"]["dev"]
    names = {re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower() for requirement in declared}
    locked = {match.lower() for match in re.findall(r"^([A-Za-z0-9._-]+)==", LOCK, re.MULTILINE)}
    assert names - locked == set()


def test_every_dependency_has_a_floor_and_a_ceiling() -> None:
    loose = [
        requirement
        for requirement in PYPROJECT["project"]["dependencies"]
        if not re.search(r">=[\d.]+,<\d", requirement)
    ]
    assert loose == []

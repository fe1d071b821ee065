"""What a worker process loads: no pydantic, no Temporal, no database, none of our heavy parts.

import-linter reads what modules name; this looks at what a fresh interpreter really loads, which
counts the packages above a module and the imports of libraries too.
"""

import json
import subprocess
import sys

import pytest

# Imports the modules named in argv, and with "--below" every module below them.
LOAD = """
import importlib, json, pkgutil, sys
before = set(sys.modules)
below = sys.argv[1] == "--below"
for name in sys.argv[1 + below:]:
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(module.__path__, f"{name}.") if below else ():
        importlib.import_module(found.name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""

LIBRARIES = {"msgspec", "zmq"}
# What these two load in turn, when it is there.
THEIRS = {"cython_runtime", "typing_extensions"}
ALLOWED = {"mitosis"} | LIBRARIES | THEIRS | set(sys.stdlib_module_names)
LIGHT_CONTRACTS = [
    f"mitosis.contracts.{name}"
    for name in ("lifecycle", "ids", "errors", "temporal_names", "outcome")
]


def loaded_by(*arguments: str) -> list[str]:
    """The modules that a fresh interpreter has in addition after importing these."""
    command = [sys.executable, "-P", "-c", LOAD, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules: list[str] = json.loads(done.stdout)
    return modules


def foreign(modules: list[str]) -> set[str]:
    """The top-level packages that a worker must not load."""
    names = {module.split(".")[0] for module in modules} - ALLOWED
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("package", ["mitosis.worker", "mitosis.ipc"])
def test_the_worker_loads_msgspec_and_zmq_only(package: str) -> None:
    modules = loaded_by("--below", package)
    assert foreign(modules) == set()
    ours = {".".join(module.split(".")[:2]) for module in modules if module.startswith("mitosis.")}
    assert ours <= {"mitosis.worker", "mitosis.ipc", "mitosis.contracts"}


@pytest.mark.parametrize("module", ["mitosis", "mitosis.jobs.building", *LIGHT_CONTRACTS])
def test_the_vocabulary_loads_the_standard_library_and_msgspec_only(module: str) -> None:
    assert foreign(loaded_by(module)) == set()


def test_the_clients_load_no_definitions_of_jobs() -> None:
    assert "mitosis.jobs.definition" not in loaded_by("mitosis.client.sync")


def test_a_program_that_imports_handler_stays_light() -> None:
    program = "import sys; from mitosis import handler; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"pydantic", "httpx2", "asyncio", "mitosis.client"} & set(done.stdout.split())

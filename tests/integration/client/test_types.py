"""mypy --strict, run as users run it on a project of their own, sees the types of the SDK."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkout import ROOT

EXAMPLES = ("parameter_sweep/sweep.py", "batch_over_files/batch.py", "ci_pipeline/pipeline.py")

PROGRAM = """
import asyncio
from collections.abc import AsyncIterator
from typing import assert_type

from mitosis import Client, SyncClient, TaskFailed, handler


@handler(timeout=60, retries=2)
def area(width: int, height: float = 1.0) -> tuple[int, float]:
    return width, width * height


@handler
async def later(text: str) -> dict[str, int]:
    return {text: 1}


def plain(number: int) -> float:
    return number / 2


async def numbers() -> AsyncIterator[int]:
    yield 1


assert_type(area(1), tuple[int, float])


def sync(client: SyncClient) -> None:
    with client.task_group("work", workers=2) as group:
        assert_type(group.submit(area, 3, height=2.5).result(10), tuple[int, float])
        assert_type(group.submit(later, "x").result(), dict[str, int])
        assert_type(list(group.map(area, range(3), timeout=5, priority=1)), list[tuple[int, float]])
        assert_type(list(group.map(later, ["x"])), list[dict[str, int]])
        assert_type(
            list(group.map(plain, [1], return_exceptions=True)), list[float | TaskFailed]
        )
        assert_type(list(group.starmap(area, [(1, 2.0)])), list[tuple[int, float]])
        group.submit(area, "3")  # expect: call-overload
        group.map(area, ["3"])  # expect: arg-type
        group.map(area, [1], priorty=3)  # expect: call-overload
        group.submit(area.options(retries=1), 3)
        area.options(retry=1)  # expect: call-arg


async def asynchronous(client: Client) -> None:
    async with client.task_group() as group:
        assert_type(await group.submit(area, 3), tuple[int, float])
        assert_type(await asyncio.gather(group.submit(later, "x")), tuple[dict[str, int]])
        async for result in group.map(area, numbers(), ordered=False):
            assert_type(result, tuple[int, float])
        async for text in group.map(later, ["x"], return_exceptions=True):
            assert_type(text, dict[str, int] | TaskFailed)
        assert_type(await group.submit_task({"command": ["true"]}), object)  # expect: assert-type
        await group.submit(plain)  # expect: call-overload
"""


@pytest.mark.timeout(300)
def test_a_users_program_and_our_examples_are_typed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    files = [str(program), *(str(ROOT / "examples" / name) for name in EXAMPLES)]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"),
            *("--cache-dir", str(ROOT / ".mypy_cache" / "users"), "--scripts-are-modules"),
            *("--no-pretty", "--hide-error-context", "--python-version=3.11", *files),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in done.stdout.splitlines() if ": error: " in line]
    found = {(line.split(":")[1], line.rpartition("[")[2].rstrip("]")) for line in said}
    wanted = {
        (str(number), line.partition("# expect: ")[2])
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if "# expect: " in line
    }
    assert found == wanted, done.stdout + done.stderr
    assert all(line.startswith("program.py:") for line in said), done.stdout

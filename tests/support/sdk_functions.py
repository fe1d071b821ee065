"""Functions as users write them, imported by the workers of a real stack."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from mitosis import current_task, handler


@handler
def area(width: int, height: float = 1.0) -> tuple[int, float]:
    return width, width * height


@handler
async def later(number: int) -> dict[int, str]:
    await asyncio.sleep(0.01)
    return {number: "done"}


@handler
def fails(text: str) -> int:
    raise LookupError(f"no row {text}")


@handler(retries=2)
def second_time(_number: int) -> int:
    attempt = current_task().attempt
    if attempt < 2:
        raise RuntimeError("not yet")
    return attempt


@handler
def wait_for(path: str) -> int:
    """Until there is such a file."""
    while not Path(path).exists():
        time.sleep(0.02)
    return os.getpid()


def same(value: Any) -> Any:
    return value


def not_json(_number: int) -> Any:
    return {1, 2}


def process() -> int:
    return os.getpid()

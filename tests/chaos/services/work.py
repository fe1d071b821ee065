"""The handler of the campaign: it answers with what it was given, and notes that it ran."""

import os
from typing import Any

import mitosis


def answer(number: int, records: str) -> dict[str, Any]:
    task = mitosis.current_task()
    descriptor = os.open(records, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{task.task_id}\n".encode())
    finally:
        os.close(descriptor)
    return {
        "number": number,
        "named_task": task.named_task,
        "configuration": task.configuration,
        "version": task.configuration_version,
    }

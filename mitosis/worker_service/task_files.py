"""The files of named tasks of a worker service, ``config/**/*.yaml``: one named task each.

Example::

    namespace_name: images
    name: resize
    version: 1.4.0
    handler: shop.images:resize
    configuration: {size: 300}
    priority: 100
"""

import errno
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, PrivateAttr, StringConstraints, ValidationError

from mitosis.contracts.bounded_files import read_bounded
from mitosis.contracts.checked_model import describe_validation_error, path_of_error
from mitosis.contracts.errors import ConfigurationError
from mitosis.contracts.http import Int32, RequestBody
from mitosis.contracts.identifiers import Name
from mitosis.contracts.named_tasks import TaskName, task_name
from mitosis.contracts.worker_services import Configuration, Count, SupportedTask, TaskVersion

HANDLER = r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$"

MOST_BYTES = 100_000
"""Of one file: YAML is read at about 100 kB/s."""
MOST_BYTES_TOGETHER = 1_000_000
MOST_FILES = 1_000


class TaskFile(RequestBody):
    """What one file says of its named task."""

    namespace_name: Name
    name: Name
    version: TaskVersion = "1.0.0"
    handler: Annotated[str, StringConstraints(pattern=HANDLER)] | None = None
    """``module:function``; without it another option has to name what executes the task."""
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """argv, in the place of a handler."""
    executor: Name | None = None
    """The kind of the executor that carries it out."""
    configuration: Configuration = Field(default={})
    priority: Int32 = 100
    max_concurrent: Count | None = None
    _path: str = PrivateAttr(default="")

    @property
    def path(self) -> str:
        """Where it was read."""
        return self._path

    @property
    def task(self) -> TaskName:
        return TaskName(self.namespace_name, self.name, self.version)

    def supported(self) -> SupportedTask:
        """Return the association that the file describes."""
        fields = self.task._asdict() | {
            "configuration": self.configuration,
            "priority": self.priority,
            "max_concurrent": self.max_concurrent,
        }
        return SupportedTask.model_validate(fields)


def read_task_files(folder: Path) -> dict[TaskName, TaskFile]:
    """Return what the files below a folder say; nothing if there is no such folder.

    Raises:
        ConfigurationError: names the file, the field and what would be right.
    """
    found: dict[TaskName, TaskFile] = {}
    places: dict[TaskName, Path] = {}
    paths = list(islice(_paths(folder), MOST_FILES + 1))
    if len(paths) > MOST_FILES:
        raise ConfigurationError(f"{folder} has more than {MOST_FILES} files of named tasks")
    left = MOST_BYTES_TOGETHER
    for path in sorted(paths):
        content = _content(path)
        left -= len(content)
        if left < 0:
            raise ConfigurationError(
                f"the files in {folder} have more than {MOST_BYTES_TOGETHER} bytes: {path} is one too many"
            )
        one = _parsed(path, content)
        if (other := places.get(one.task)) is not None:
            raise ConfigurationError(f"{path} and {other} both have {task_name(*one.task)}")
        found[one.task], places[one.task] = one, path
    return found


def marks(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Return what differs when a file below the folder has been written."""
    paths = islice(_paths(folder), MOST_FILES + 1)
    return frozenset((str(p), s.st_mtime_ns, s.st_size) for p in paths if (s := _stat(p)))


def _paths(folder: Path) -> Iterator[Path]:
    return chain(folder.rglob("*.yaml"), folder.rglob("*.yml"))


def _stat(path: Path) -> Any:
    try:
        return path.stat()
    except OSError:  # it has been removed since
        return None


def _content(path: Path) -> bytes:
    if not path.is_file():  # a named pipe would be waited for
        raise ConfigurationError(f"{path} is not a regular file")
    try:
        return read_bounded(path, MOST_BYTES)
    except OSError as error:
        # Another cause may pass: the file is read again.
        cause = None if error.errno == errno.EFBIG else error
        raise ConfigurationError(f"{path}: {error.strerror}") from cause


def _parsed(path: Path, text: bytes) -> TaskFile:
    try:
        content = yaml.safe_load(text)
    except RecursionError:
        raise ConfigurationError(f"{path} is nested too deep") from None
    except (ValueError, yaml.YAMLError) as error:  # ValueError: a date that does not exist
        raise ConfigurationError(f"{path}: {error}") from None
    if _is_larger(content, MOST_BYTES):
        raise ConfigurationError(
            f"{path}: with its aliases it has more than {MOST_BYTES} characters"
        )
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} must have the fields of one named task, as name: resize")
    try:
        file = TaskFile.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = describe_validation_error(first, "python")
        raise ConfigurationError(f"{path}: {path_of_error(first['loc'])} {what}") from None
    if file.handler is not None and file.command is not None:
        raise ConfigurationError(f"{path}: give handler or command, not both")
    file._path = str(path)  # noqa: SLF001 - made here
    return file


def _is_larger(content: object, most: int) -> bool:
    """Return whether there are more values than ``most``, counted as often as aliases repeat them."""
    left, found = [content], 0
    while left and found <= most:
        value = left.pop()
        found += 1
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
        elif isinstance(value, str):
            found += len(value)
    return found > most

"""The files of named tasks of a worker service, ``config/**/*.yaml``: one named task each.

Example::

    namespace_name: images
    name: resize
    version: 1.4.0
    handler: shop.images:resize
    configuration: {size: 300}
    priority: 100
"""

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, PrivateAttr, StringConstraints, ValidationError

from mitosis.contracts.checked_model import describe_validation_error, path_of_error
from mitosis.contracts.errors import ConfigurationError
from mitosis.contracts.http import Int32, RequestBody
from mitosis.contracts.identifiers import Name
from mitosis.contracts.named_tasks import TaskName, task_name
from mitosis.contracts.worker_services import Configuration, Count, SupportedTask, TaskVersion

HANDLER = r"^[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*$"


class TaskFile(RequestBody):
    """What one file says of its named task."""

    namespace_name: Name
    name: Name
    version: TaskVersion = "1.0.0"
    handler: Annotated[str, StringConstraints(pattern=HANDLER)] | None = None
    """``module:function``; without it another option has to name what executes the task."""
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """argv, in the place of a handler."""
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
    for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
        one = _read(path)
        if (other := places.get(one.task)) is not None:
            raise ConfigurationError(f"{path} and {other} both have {task_name(*one.task)}")
        found[one.task], places[one.task] = one, path
    return found


def marks(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Return what differs when a file below the folder has been written."""
    paths = [*folder.rglob("*.yaml"), *folder.rglob("*.yml")]
    return frozenset((str(p), s.st_mtime_ns, s.st_size) for p in paths if (s := _stat(p)))


def _stat(path: Path) -> Any:
    try:
        return path.stat()
    except OSError:  # it has been removed since
        return None


def _read(path: Path) -> TaskFile:
    if not path.is_file():  # a named pipe would be waited for
        raise ConfigurationError(f"{path} is not a regular file")
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except RecursionError:
        raise ConfigurationError(f"{path} is nested too deep") from None
    except (ValueError, yaml.YAMLError) as error:  # ValueError: a date that does not exist
        raise ConfigurationError(f"{path}: {error}") from None
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

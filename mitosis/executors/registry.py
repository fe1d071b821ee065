"""Finds the executors: those of Mitosis, and those of installed packages."""

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points

from mitosis.contracts.errors import ConfigurationError, InvalidRequest
from mitosis.executors.cloud_run.kind import CloudRunKind
from mitosis.executors.command import CommandKind
from mitosis.executors.container import ContainerKind
from mitosis.executors.contract import ExecutorKind
from mitosis.executors.handler import HandlerKind

ENTRY_POINTS = "mitosis.executors"
"""Each is called without arguments and returns an ``ExecutorKind``; its name is the kind."""
BUILT_IN: Mapping[str, Callable[[], ExecutorKind]] = {
    "cloud_run": CloudRunKind,
    "command": CommandKind,
    "container": ContainerKind,
    "handler": HandlerKind,
}


def known_kinds() -> list[str]:
    """Return all kinds that a worker service may name."""
    return sorted({*BUILT_IN, *_points()})


def find_executor(kind: str) -> ExecutorKind:
    """Make what makes the executors of a kind.

    Raises:
        InvalidRequest: there is no such kind.
        ConfigurationError: its package cannot be loaded, or two have it.
    """
    if (built_in := BUILT_IN.get(kind)) is not None:
        return built_in()
    points = _points().get(kind, [])
    if not points:
        raise InvalidRequest(
            f"there is no executor {kind!r:.100}; there are {', '.join(known_kinds())}. A package adds"
            f" one by an entry point of the group {ENTRY_POINTS}",
            field="executor",
        )
    if len(points) > 1:
        values = " and ".join(sorted(point.value for point in points))
        raise ConfigurationError(f"the executor {kind} is in two packages: {values}. Uninstall one")
    return _made(points[0])


def _made(point: EntryPoint) -> ExecutorKind:
    try:
        kind: ExecutorKind = point.load()()
    except Exception as error:  # noqa: BLE001 - a package of a user may raise anything
        raise ConfigurationError(
            f"cannot load the executor {point.name} = {point.value}: {type(error).__name__}: {error}"
        ) from None
    missing = [name for name in ("check", "start", "make", "close") if not hasattr(kind, name)]
    if missing:
        raise ConfigurationError(
            f"the executor {point.name} = {point.value} has no {', '.join(missing)}: see docs/executors.md"
        )
    return kind


def _points() -> dict[str, list[EntryPoint]]:
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=ENTRY_POINTS):
        found.setdefault(point.name, []).append(point)
    return found

"""Workloads as lines of JSON: one record in each, its ``kind`` says which; see docs/simulation.md."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from mitosis.contracts.errors import InvalidRequest
from mitosis.scheduling.simulation.workload import (
    AwayRecord,
    DrainRecord,
    GroupRecord,
    HostRecord,
    Record,
    TasksRecord,
    Workload,
    WorkloadRecord,
)

_DECODER: msgspec.json.Decoder[WorkloadRecord | Record] = msgspec.json.Decoder(
    WorkloadRecord | Record
)
_ENCODER = msgspec.json.Encoder()
R = TypeVar("R")


def workload_lines(workload: Workload) -> Iterator[bytes]:
    """Yield a workload as lines, each with its end."""
    head = WorkloadRecord(until=workload.until, failing_setups=workload.failing_setups)
    for record in (head, *workload.records()):
        yield _ENCODER.encode(record) + b"\n"


def read_workload(lines: Iterable[bytes]) -> Workload:
    """Return the workload of some lines; empty ones do not count.

    Raises:
        InvalidRequest: a line is no record, or names a host or task group that there is not.
    """
    records = [_decoded(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    heads = _of(records, WorkloadRecord)
    if len(heads) != 1:
        raise InvalidRequest(
            'a workload has exactly one line {"kind": "workload", "until": SECONDS},'
            f" this one has {len(heads)}"
        )
    made = Workload(
        until=heads[0].until,
        failing_setups=heads[0].failing_setups,
        hosts=_of(records, HostRecord),
        groups=_of(records, GroupRecord),
        tasks=_of(records, TasksRecord),
        away=_of(records, AwayRecord),
        drains=_of(records, DrainRecord),
    )
    _check(made)
    return made


def _decoded(number: int, line: bytes) -> WorkloadRecord | Record:
    try:
        return _DECODER.decode(line)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"line {number}: {error}") from None


def _of(records: Sequence[WorkloadRecord | Record], kind: type[R]) -> Sequence[R]:
    return [record for record in records if isinstance(record, kind)]


def _check(workload: Workload) -> None:
    """Check that names are unique and exist, and that times make sense."""
    hosts = _unique("host", [host.name for host in workload.hosts])
    groups = _unique("task group", [group.name for group in workload.groups])
    for group in workload.groups:
        _refuse_unknown("host", group.hosts or (), hosts, f"task group {group.name}")
    for tasks in workload.tasks:
        _refuse_unknown("task group", [tasks.group], groups, "tasks")
        if bool(tasks.seconds) == bool(tasks.count):
            raise InvalidRequest(
                f"tasks of {tasks.group} at {tasks.at:g} have either seconds or count and mean_seconds"
            )
    times: Sequence[AwayRecord | DrainRecord] = [*workload.away, *workload.drains]
    for time in times:
        _refuse_unknown("host", [time.host], hosts, "a time of a host")
        if time.until < time.at:
            raise InvalidRequest(
                f"{time.host}: until must be at least at, {time.at:g}, not {time.until:g}"
            )


def _unique(what: str, names: Sequence[str]) -> frozenset[str]:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidRequest(f"{what} {twice[0]} is there twice; names must be unique")
    return frozenset(names)


def _refuse_unknown(what: str, names: Iterable[str], known: frozenset[str], where: str) -> None:
    for name in names:
        if name not in known:
            raise InvalidRequest(f"{where}: there is no {what} {name!r}")

"""A snapshot and its time as bytes, so that a decision can be made again on the facts that it had. Pure.

Sets of hosts are written as bytes: bit ``n`` stands for the host at place ``n`` of ``numbers``.
"""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from mitosis.contracts.allocation import CpuBinding
from mitosis.scheduling.facts import Group, Host, Lease, Work
from mitosis.scheduling.host_sets import NONE, Hosts
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.snapshot import Snapshot

FAST = 1
"""Of the levels of zlib: a record is written in the transaction of a round."""


class RecordedGroup(NamedTuple):
    """A task group without its sets of hosts, and these."""

    group: Group
    work: Work
    members: bytes
    removed: bytes


class Record(NamedTuple):
    """All inputs of one decision."""

    now: float
    policy: Policy
    hosts: list[Host]
    groups: list[RecordedGroup]
    leases: list[Lease]
    numbers: Sequence[int] = ()
    """Of the hosts with a bit in sets, in their order; of ``hosts`` where there are none."""


def recorded(snapshot: Snapshot, now: float) -> bytes:
    """Return the inputs of a decision."""
    groups = [_without_sets(state.fact, state.work) for state in snapshot.groups.values()]
    hosts = [state.fact for state in snapshot.hosts.values()]
    leases = list(snapshot.leases.values())
    record = Record(now, snapshot.policy, hosts, groups, leases, snapshot.numbers)
    return zlib.compress(msgspec.msgpack.encode(record, enc_hook=_from_model), FAST)


def restored(data: bytes) -> tuple[Snapshot, float]:
    """Return the snapshot of a record, and its time.

    Raises:
        msgspec.ValidationError: it was written by a version with other facts.
    """
    record = msgspec.msgpack.decode(zlib.decompress(data), type=Record, dec_hook=_to_model)
    groups = [
        (replace(one.group, members=_set(one.members), removed=_set(one.removed)), one.work)
        for one in record.groups
    ]
    facts = (record.hosts, groups, record.leases, record.numbers)
    return Snapshot.of(record.policy, *facts), record.now


def _without_sets(group: Group, work: Work) -> RecordedGroup:
    bare = replace(group, members=NONE, removed=NONE)
    return RecordedGroup(bare, work, _bytes(group.members), _bytes(group.removed))


def _bytes(hosts: Hosts) -> bytes:
    return hosts.to_bytes((hosts.bit_length() + 7) // 8, "little")


def _set(data: bytes) -> Hosts:
    return int.from_bytes(data, "little")


def _from_model(value: Any) -> Any:
    if isinstance(value, CpuBinding):
        return value.model_dump(mode="json")
    raise NotImplementedError(type(value))


def _to_model(kind: type, value: Any) -> Any:
    if kind is CpuBinding:
        return CpuBinding.model_validate(value)
    raise NotImplementedError(kind)

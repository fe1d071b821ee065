"""Measured durations: setups and teardowns of task groups and hosts, tasks of task groups (C-31, C-35, P9).

Setups and teardowns are recorded when an environment changes, the durations of tasks beside the counters that
a report changes in any case. Nothing is written for a single task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_all
from mitosis.store.pg.statements import load

SQL = load("leases/durations.sql")
DURATION = SQL["duration"]
"""An expression: what is known of the kind k.kind for the pair p of group and host."""
PAIR_DURATIONS = SQL["pair_durations"].replace("$duration$", DURATION)
RUNS_REMEMBERED = 20
"""A mean follows a change within about this many runs."""
DurationKind = Literal["setup", "teardown", "drain", "kept"]
"""The last two are recorded when a lease ends (``switching.py``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDurations:
    """What has been measured for one task group, in seconds; 0 where nothing was."""

    number: int
    tasks_measured: int
    """Tasks that have ended and were measured."""
    task_seconds: float
    """Their mean duration."""
    setup_seconds: float
    """Mean over hosts."""
    teardown_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDurations:
    """What setup and teardown of one task group take on one host, in seconds.

    As measured for both; else the mean of the task group, else that of the host, else 0.
    """

    group: int
    manager: int
    setup_seconds: float
    teardown_seconds: float


async def record_duration(
    connection: Connection,
    group_number: int,
    manager_number: int,
    kind: DurationKind,
    seconds: float,
) -> None:
    """Add a duration to the means and the sums of the group, of the host and of both.

    In the transaction of the caller, which holds the environment; these rows come last in the order of locks.
    """
    values = {
        "group_number": group_number,
        "manager_number": manager_number,
        "kind": kind,
        "seconds": seconds,
        "window": RUNS_REMEMBERED,
    }
    await connection.execute(SQL["record_duration"], values)


async def group_durations(
    connection: Connection, groups: Sequence[int]
) -> Mapping[int, GroupDurations]:
    """Return what has been measured for each of these groups. One statement over indexes."""
    rows = await fetch_all(
        connection, GroupDurations, SQL["group_durations"], {"groups": list(groups)}
    )
    return {row.number: row for row in rows}


async def pair_durations(
    connection: Connection, pairs: Sequence[tuple[int, int]]
) -> Mapping[tuple[int, int], PairDurations]:
    """Return the durations of these pairs of group and host, by their numbers. One statement over indexes."""
    values = {"groups": [pair[0] for pair in pairs], "managers": [pair[1] for pair in pairs]}
    rows = await fetch_all(connection, PairDurations, PAIR_DURATIONS, values)
    return {(row.group, row.manager): row for row in rows}

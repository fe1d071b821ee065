"""Judges hosts whose tasks fail (C-33): reads the facts, applies ``verdicts``, writes what follows.

A report calls :func:`judge_report` in a transaction of its own after failures, the assignment round
:func:`judge_groups` for what became due. Both may be repeated or left out: the doubted tasks and the rows of
``host_failures`` are the state.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from mitosis.contracts.errors import DatabaseUnavailable, NotFound
from mitosis.contracts.host_failures import PAUSES, HostFailureKind
from mitosis.contracts.lifecycle import TASK_GROUP
from mitosis.contracts.liveness import HOST_LOST_AFTER
from mitosis.contracts.outcome import CRASHES
from mitosis.retry_policy import RetryPolicy
from mitosis.store.leases.ending import LockedGroup, lock_group
from mitosis.store.leases.membership import with_membership
from mitosis.store.leases.verdicts import (
    AWAITED_SECONDS,
    DOUBT_SECONDS,
    EXCUSED_SECONDS,
    SUSPECTED_SECONDS,
    TRIED_ELSEWHERE,
    Phase,
    Suspect,
    Verdict,
    judge,
    with_trials,
)
from mitosis.store.pg.arrays import number_array
from mitosis.store.pg.database import Connection
from mitosis.store.pg.outbox import poke
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("leases/doubt.sql")
MESSAGE = '{"message":"'
"""The start of the detail of a crash; the statements insert the number of crashes before the message."""
ALONE = "no other host could try them"
"""Why nothing follows from the failures of a host that is watched, or was believed."""
GIVEN_UP = MESSAGE + "Worker failed "
JUDGED_AGAIN_SECONDS = 10.0
"""While a failure is doubted or a host suspected, the round judges so often (protocol P7)."""
KEPT_QUARANTINES_SECONDS = 600.0
"""A round looks so often whether a host is still to be quarantined."""
MOST_PASSES = 20
"""A verdict may change what is known about other hosts; so often they are judged again at once."""
log = logging.getLogger(__name__)
AWAITED: Mapping[str, float] = {
    "awaited": AWAITED_SECONDS,
    "in_contact": HOST_LOST_AFTER.total_seconds(),
}
"""Parameters of the expressions about other hosts, beside ``quarantine_after``."""
_EXPRESSIONS = (
    *(
        "working",
        "possible",
        "expected",
        "away_seconds",
        "away_since",
        "other",
        "able_hosts",
        "able",
    ),
    *("full", "fails_there", "noted_there", "group", "fits", "busy_since", "paused_since"),
    *("failed_there", "serving", "blamed"),
)
"""Of ``doubt.sql``; the first ones contain the last ones."""
FOR_EACH_ROW: Mapping[str, LiteralString] = {
    "able_hosts": SQL["able"],
    "group": "v.group_id",
    "fails_there": SQL["own_fails_there"],
    "noted_there": SQL["fails_there"],
}
ONCE: Mapping[str, LiteralString] = {"able_hosts": "able", "group": "%(group_number)s"}


def with_other_hosts(
    statement: LiteralString, hosts: Mapping[str, LiteralString] = FOR_EACH_ROW
) -> LiteralString:
    """Fill in the expressions about other hosts, such as ``$expected$``.

    ``hosts``: how those are read that may serve the group; for each row v by itself, if it is left out.
    """
    expressions = {**SQL, **hosts}
    for name in _EXPRESSIONS:
        if name in expressions:
            statement = statement.replace(f"${name}$", expressions[name])
    return with_membership(statement)


SUSPECTS = with_other_hosts(SQL["suspects"], ONCE)
_CRASHES = [kind.value for kind in CRASHES]


def pause_seconds(failures: int) -> float:
    """Return how long a host is quarantined after so many failed probes, the first failures included."""
    pause = PAUSES[HostFailureKind.QUARANTINED]
    assert pause is not None  # noqa: S101 - a time ends it
    policy = RetryPolicy(
        first_seconds=pause.first_seconds, longest_seconds=pause.longest_seconds, jitter=0.0
    )
    return policy.pause(failures - 1)


_SECONDS: Mapping[Phase, float] = {
    Phase.SUSPECTED: SUSPECTED_SECONDS,
    Phase.EXCUSED: EXCUSED_SECONDS,
    Phase.QUARANTINED: pause_seconds(1),
}


@dataclass(frozen=True, slots=True)
class Failed:
    """What a report says about its host: the tasks that failed there after its last success."""

    group_number: int
    manager_number: int
    tasks: Sequence[int]
    succeeded: bool


@dataclass(frozen=True, slots=True)
class _Known:
    """A row of ``known``."""

    phase: Phase
    failures: int
    same_process: bool
    left_seconds: float | None

    @property
    def is_due(self) -> bool:
        return self.left_seconds is not None and self.left_seconds <= 0

    @property
    def is_kept_quarantined(self) -> bool:
        return self.phase is Phase.QUARANTINED and self.same_process and not self.is_due

    @property
    def is_over(self) -> bool:
        """Whether nothing that is known about the host counts any more."""
        match self.phase:
            case Phase.QUARANTINED:
                return not self.same_process
            case Phase.EXCUSED:
                return self.is_due
            case _:
                return self.phase is Phase.CLEARED


@dataclass(frozen=True, slots=True)
class _InDoubt:
    """A row of ``groups_in_doubt``."""

    number: int
    goes_on: bool


@dataclass(frozen=True, slots=True)
class _OfHost:
    """A row of ``groups_of_doubted``."""

    group_number: int
    manager_number: int


@dataclass(frozen=True, slots=True)
class _Doubted:
    tasks: list[int]


@dataclass(frozen=True, slots=True)
class _Due:
    seconds: float | None


async def judge_report(store: Store, failed: Failed) -> None:
    """Note what a report says about its host, and judge the hosts of its group."""
    async with store.database.transaction() as connection:
        try:
            group = await lock_group(connection, failed.group_number)
        except NotFound:  # deleted since
            return
        await _note(connection, failed)
        if await _judge(connection, group, store.quarantine_after):
            await poke(connection, scheduler=True)


async def judge_groups(store: Store) -> None:
    """Judge the hosts of every group whose doubts are due, each in a transaction of its own."""
    async with store.database.connection() as connection:
        due = await fetch_all(connection, _InDoubt, SQL["groups_in_doubt"], {})
    for row in due:
        try:
            async with store.database.transaction() as connection:
                with suppress(NotFound):  # deleted since
                    await judge_group(connection, row.number, store.quarantine_after)
        except DatabaseUnavailable as error:  # one that is locked for long holds up no other
            facts = {"group_number": row.number, "reason": error.message}
            log.warning("hosts.not_judged", extra=facts)


async def next_judgement(connection: Connection) -> float | None:
    """Return the seconds until hosts are judged again without a report; None: there is nothing to judge."""
    values = {"soon": JUDGED_AGAIN_SECONDS, "seldom": KEPT_QUARANTINES_SECONDS}
    due = await fetch_one(connection, _Due, SQL["next_judgement"], values)
    return due.seconds if due is not None else None


async def due_judgements(connection: Connection, quarantine_after: int) -> Sequence[str]:
    """Return what a judgement would change now, one line each. Reads only."""
    lines = list[str]()
    for group in await fetch_all(connection, _InDoubt, SQL["groups_in_doubt"], {}):
        for suspect in await _suspects(connection, group.number, quarantine_after):
            verdict = judge(suspect, goes_on=group.goes_on, quarantine_after=quarantine_after)
            if suspect.phase is None or _changes(suspect, verdict):
                lines.append(f"judgement of host {suspect.manager} for task group {group.number}")
    return lines


async def judge_group(connection: Connection, group_number: int, quarantine_after: int) -> None:
    """Judge the hosts of one group."""
    await _judge(connection, await lock_group(connection, group_number), quarantine_after)


async def release_doubted(
    connection: Connection, manager_id: UUID, task_group_id: UUID | None
) -> None:
    """Give doubted failures on a host another attempt, and lock the task groups that blame it.

    Of one task group, or of all (None). Else they would be counted again by the next judgement.
    """
    values = {"manager": manager_id, "group": task_group_id}
    for row in await fetch_all(connection, _OfHost, SQL["groups_of_doubted"], values):
        with suppress(NotFound):  # deleted since
            await lock_group(connection, row.group_number)
            numbers = {"group_number": row.group_number, "manager_number": row.manager_number}
            found = await fetch_one(connection, _Doubted, SQL["doubted"], numbers)
            await _release(connection, numbers, found.tasks if found is not None else ())


async def end_leases_of_blamed(connection: Connection) -> int:
    """End the leases of quarantined hosts, and of suspected ones that run nothing; return how many."""
    return (await connection.execute(SQL["end_leases"])).rowcount


async def _note(connection: Connection, failed: Failed) -> None:
    """Note that the host succeeded, that its probe failed, or that more tasks failed there."""
    numbers = {"group_number": failed.group_number, "manager_number": failed.manager_number}
    known = await fetch_one(connection, _Known, SQL["known"], numbers)
    if known is not None and known.is_kept_quarantined:  # only what began as a probe counts
        return
    if not failed.tasks:
        if failed.succeeded and known is not None:
            await _set_phase(connection, numbers, Phase.CLEARED, "it succeeded", 0, 0.0)
        return
    fresh = failed.succeeded or (known is not None and known.is_over)
    if known is not None and known.phase is Phase.QUARANTINED and not fresh:
        seconds = pause_seconds(known.failures + 1)
        await _set_phase(connection, numbers, Phase.QUARANTINED, None, known.failures + 1, seconds)
        return
    values = {
        **numbers,
        "tasks": number_array(failed.tasks),
        "reason": ALONE,
        "hold": DOUBT_SECONDS,
        "fresh": fresh,
    }
    await connection.execute(SQL["note"], values)


async def _suspects(
    connection: Connection, group_number: int, quarantine_after: int
) -> Sequence[Suspect]:
    """Return the hosts whose tasks fail in the group."""
    values = {"group_number": group_number, "quarantine_after": quarantine_after, **AWAITED}
    return with_trials(await fetch_all(connection, Suspect, SUSPECTS, values))


async def _judge(connection: Connection, group: LockedGroup, quarantine_after: int) -> bool:
    """Judge the hosts of the group; return whether a failure waits for a judgement that no report brings."""
    goes_on = group.state not in TASK_GROUP.terminal and not group.discarding
    suspects: Sequence[Suspect] = ()
    for _ in range(MOST_PASSES):
        judged = suspects
        suspects = await _suspects(connection, group.number, quarantine_after)
        if suspects == judged:  # no verdict has changed what is known
            break
        changed = False
        for suspect in suspects:
            if suspect.phase is None:
                lost = Failed(group.number, suspect.manager, suspect.doubted, succeeded=False)
                await _note(connection, lost)
                changed = True
                continue
            verdict = judge(suspect, goes_on=goes_on, quarantine_after=quarantine_after)
            await _apply(connection, group.number, suspect, verdict)
            changed |= _changes(suspect, verdict)
        if not changed:
            break
    return any(
        suspect.phase is Phase.WATCHED and suspect.doubted and not suspect.has_more
        for suspect in suspects
    )


def _changes(suspect: Suspect, verdict: Verdict) -> bool:
    """Return whether the verdict may change the facts on which others depend."""
    if verdict in (Verdict.RELEASE, Verdict.FAIL):
        return bool(suspect.doubted)
    return verdict is not Verdict.WAIT


async def _apply(
    connection: Connection, group_number: int, suspect: Suspect, verdict: Verdict
) -> None:
    numbers = {"group_number": group_number, "manager_number": suspect.manager}
    match verdict:
        case Verdict.WAIT:
            return
        case Verdict.FAIL:
            await _fail(connection, numbers, suspect)
            await connection.execute(SQL["rest"], numbers)
        case Verdict.FORGET:
            await _fail(connection, numbers, suspect)
            await connection.execute(SQL["forget_tasks"], numbers)
        case Verdict.SUSPECT:
            await _try_elsewhere(connection, numbers, suspect)
            reason = f"the last {suspect.in_a_row} tasks that ended there failed"
            await _enter(connection, numbers, suspect, Phase.SUSPECTED, reason)
        case Verdict.TRY:
            await _try_elsewhere(connection, numbers, suspect)
        case Verdict.EXCUSE:
            await _fail(connection, numbers, suspect)
            reason = "they fail on other hosts too" if suspect.fails_elsewhere else ALONE
            await _enter(connection, numbers, suspect, Phase.EXCUSED, reason)
        case Verdict.QUARANTINE | Verdict.RELEASE:
            await _quarantine(connection, numbers, suspect)


async def _quarantine(
    connection: Connection, numbers: Mapping[str, object], suspect: Suspect
) -> None:
    """Quarantine the host, or quarantine it for longer if its probe failed; give all attempts back."""
    await _release(connection, numbers, suspect.doubted)
    await connection.execute(SQL["forgive"], {**numbers, "crashes": _CRASHES})
    if suspect.phase is Phase.SUSPECTED:
        reason = (
            f"{suspect.failures} tasks in a row failed there, and"
            f" {suspect.succeeded_elsewhere} of them succeeded elsewhere"
        )
        await _enter(connection, numbers, suspect, Phase.QUARANTINED, reason)


async def _enter(
    connection: Connection,
    numbers: Mapping[str, object],
    suspect: Suspect,
    phase: Phase,
    reason: str,
) -> None:
    """Begin a phase, and wake what waits for its consequences."""
    quarantined = phase is Phase.QUARANTINED
    failures, seconds = (1 if quarantined else suspect.failures), _SECONDS[phase]
    await _set_phase(connection, numbers, phase, reason, failures, seconds)
    await connection.execute(SQL["wake"], numbers)
    facts = {
        "manager_name": suspect.name,
        "group_number": numbers["group_number"],
        "phase": phase.value,
        "reason": reason,
    }
    log.warning("host.judged", extra=facts)


async def _set_phase(
    connection: Connection,
    numbers: Mapping[str, object],
    phase: Phase,
    reason: str | None,
    failures: int,
    seconds: float,
) -> None:
    values = {
        **numbers,
        "phase": phase.value,
        "reason": reason,
        "failures": failures,
        "seconds": seconds,
    }
    await connection.execute(SQL["set_phase"], values)


async def _release(
    connection: Connection, numbers: Mapping[str, object], tasks: Sequence[int]
) -> None:
    if tasks:
        values = {**numbers, "tasks": number_array(tasks), "crashes": _CRASHES}
        await connection.execute(SQL["release"], values)
        await connection.execute(SQL["wake"], numbers)


async def _try_elsewhere(
    connection: Connection, numbers: Mapping[str, object], suspect: Suspect
) -> None:
    tasks = suspect.doubted[:TRIED_ELSEWHERE]
    if tasks:
        await _release(connection, numbers, tasks)
        await connection.execute(SQL["count_as_tried"], {**numbers, "tasks": number_array(tasks)})


async def _fail(connection: Connection, numbers: Mapping[str, object], suspect: Suspect) -> None:
    if suspect.doubted:
        values = {
            **numbers,
            "tasks": number_array(suspect.doubted),
            "crashes": _CRASHES,
            "message": MESSAGE,
            "given_up": GIVEN_UP,
        }
        await connection.execute(SQL["fail"], values)

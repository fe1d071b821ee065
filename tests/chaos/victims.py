"""Finds the processes of a running `mitosis up` by ancestry, and kills one of them with SIGKILL."""

import random
import signal
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.chaos.plan import Victim
from tests.support.processes import living, read
from tests.support.waiting import wait_until

FOUND_SECONDS = 60.0
"""A victim may be on its way back from the kill before."""
COMMAND_LINES: Mapping[Victim, tuple[str, str]] = {
    Victim.POSTGRES: ("postgres", "-D"),
    Victim.TEMPORAL: ("temporal", "start-dev"),
    Victim.TEMPORAL_WIPED: ("temporal", "start-dev"),
    Victim.AGENT: ("python", "agent"),
    Victim.API: ("python", "api"),
    Victim.CONTROL: ("python", "control"),
    Victim.RELAY: ("python", "control"),
}
"""How a child of the supervisor is known: begin of its name, a word of its command line."""
BELOW_AGENTS = (Victim.ZYGOTE, Victim.WORKER, Victim.COMMAND)
"""Each a child of the one before, the first of an agent."""


def kill(up: int, victim: Victim, data_dir: Path, dice: random.Random) -> None:
    """Kill one such process below the supervisor ``up``, or that itself; returns when it is dead.

    Raises:
        AssertionError: for a minute there was none.
    """
    wait_until(lambda: _killed(up, victim, data_dir, dice), FOUND_SECONDS, f"no {victim}")


def stop(up: int, victim: Victim) -> None:
    """SIGSTOP the one such process: it is there, and does nothing more."""
    wait_until(lambda: _stopped(up, victim), FOUND_SECONDS, f"no {victim}")


def _stopped(up: int, victim: Victim) -> bool:
    try:
        found = candidates(up, victim)
        for process in found:
            process.send_signal(signal.SIGSTOP)
    except psutil.NoSuchProcess:
        return False
    return bool(found)


def _killed(up: int, victim: Victim, data_dir: Path, dice: random.Random) -> bool:
    try:
        found = sorted(candidates(up, victim), key=lambda process: process.pid)
        if not found:
            return False
        chosen = dice.choice(found)
        if victim is Victim.TEMPORAL_WIPED:
            # Stopped first, so that it cannot write the files again before it dies.
            chosen.send_signal(signal.SIGSTOP)
            for file in (data_dir / "temporal").glob("temporal.db*"):
                file.unlink()
        chosen.kill()
    except psutil.NoSuchProcess:
        return False
    wait_until(lambda: not living([chosen]))
    return True


def candidates(up: int, victim: Victim) -> list[psutil.Process]:
    """Zygote and workers share a command line, which they got by a fork: ancestry tells them apart."""
    supervisor = psutil.Process(up)
    if victim is Victim.SUPERVISOR:
        return [supervisor]
    if victim in BELOW_AGENTS:
        return _below_agents(victim, candidates(up, Victim.AGENT))
    return _named(supervisor, *COMMAND_LINES[victim])


def _below_agents(victim: Victim, agents: list[psutil.Process]) -> list[psutil.Process]:
    found = [zygote for agent in agents for zygote in _named(agent, "python", "zygote")]
    for _ in range(BELOW_AGENTS.index(victim)):
        found = [child for parent in found for child in parent.children()]
    return found


def _named(parent: psutil.Process, name: str, word: str) -> list[psutil.Process]:
    told = read(parent.children(), lambda one: (one, one.name(), one.cmdline()))
    return [one for one, its, line in told if its.startswith(name) and word in line]

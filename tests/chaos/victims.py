"""Finds the processes of a running `mitosis up` by ancestry, and kills one of them with SIGKILL."""

import random
import signal
from pathlib import Path

import psutil

from tests.chaos.plan import Victim
from tests.support.waiting import wait_until

FOUND_SECONDS = 60.0
"""A victim may be on its way back from the kill before."""


def kill(up: int, victim: Victim, data_dir: Path, dice: random.Random) -> None:
    """Kill one such process below the supervisor ``up``, or that itself; returns when it is dead.

    Raises:
        AssertionError: for a minute there was none.
    """
    wait_until(lambda: _killed(up, victim, data_dir, dice), FOUND_SECONDS, f"no {victim}")


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
    wait_until(lambda: not chosen.is_running() or chosen.status() == psutil.STATUS_ZOMBIE)
    return True


def candidates(up: int, victim: Victim) -> list[psutil.Process]:
    """Zygote and workers share a command line, which they got by a fork: ancestry tells them apart."""
    supervisor = psutil.Process(up)
    match victim:
        case Victim.SUPERVISOR:
            return [supervisor]
        case Victim.POSTGRES:
            return _named(supervisor, "postgres", "-D")
        case Victim.TEMPORAL | Victim.TEMPORAL_WIPED:
            return _named(supervisor, "temporal", "start-dev")
        case Victim.AGENT:
            return _named(supervisor, "python", "agent")
        case _:
            return _below_agents(victim, candidates(up, Victim.AGENT))


def _below_agents(victim: Victim, agents: list[psutil.Process]) -> list[psutil.Process]:
    found = [zygote for agent in agents for zygote in _named(agent, "python", "zygote")]
    for _ in range((Victim.ZYGOTE, Victim.WORKER, Victim.COMMAND).index(victim)):
        found = [child for parent in found for child in parent.children()]
    return found


def _named(parent: psutil.Process, name: str, word: str) -> list[psutil.Process]:
    return [c for c in parent.children() if c.name().startswith(name) and word in c.cmdline()]

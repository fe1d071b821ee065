"""Makes the hello of an agent: what it says of its host (protocol P5)."""

import os
import socket
from collections.abc import Collection, Sequence
from pathlib import Path

from mitosis.contracts.agent_http import AttemptList, Hello
from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.http import MAX_ATTEMPTS_LISTED
from mitosis.execution import identity
from mitosis.version import __version__


def hello(
    state_dir: Path,
    incarnation: int,
    *,
    take_over: bool = False,
    journal: Sequence[AttemptKey] = (),
    planned_stop: int | None = None,
    begun: Collection[AttemptKey] = (),
) -> Hello:
    """Return the hello of this process.

    Args:
        state_dir: holds the identity of the machine, if it has none of its own.
        incarnation: of this process.
        take_over: take the manager id from a host that is still in contact.
        journal: the attempts whose reports this host holds.
        planned_stop: incarnation of the process that stopped in order, if the last one did.
        begun: attempts that an earlier process has started; of too many those with the highest ids.
    """
    said = Hello(
        incarnation=incarnation,
        machine_id=identity.machine_id(state_dir),
        boot_id=identity.boot_id(),
        host_name=socket.gethostname(),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        agent_version=__version__,
        take_over=take_over,
    )
    facts = {
        "journal": AttemptList.of(journal) if journal else None,
        "planned_stop": planned_stop,
        "begun": AttemptList.of(sorted(begun)[-MAX_ATTEMPTS_LISTED:]) if begun else None,
    }
    return said.model_copy(update={name: fact for name, fact in facts.items() if fact is not None})

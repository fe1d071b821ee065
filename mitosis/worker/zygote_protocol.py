"""The packets between a manager agent and its zygote, over one SEQPACKET socket pair.

Two unions named by direction; one packet is one msgpack array. The agent starts the zygote with
``python -P -m mitosis.worker zygote`` (the interpreter of the plan), its own session, and one end of
the socket pair as file descriptor 3. It sends :class:`Setup`, then waits for :class:`Ready` or
:class:`ImportFailed`; after that it spawns and kills workers. The protocol has no message for the end:
closing the socket kills all descendants of the zygote, and then the zygote itself. (Call ``shutdown``
first: a forked process of the agent that inherited the descriptor would keep it open.)
"""

from typing import TypeVar

import msgspec

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import Conflict

AGENT_FD = 3
"""The zygote's end of the socket pair."""
MAX_PACKET_BYTES = 128 * 1024
"""Well below the default send buffer of a UNIX socket (net.core.wmem_default, 208 KiB)."""


class ZygoteProtocolError(Conflict):
    """A packet is not a message of this direction, or is too large to send."""

    code = "zygote_protocol_error"


class Packet(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """Base of all packets. array_like: fields may be added at the end with a default only."""


# --- agent to zygote ----------------------------------------------------------------------------


class Setup(Packet, frozen=True, kw_only=True):
    """The first packet: the settings that all workers of this lease session share."""

    manager_id: str
    endpoint: str
    """Of the agent's ROUTER, which is bound before the first worker is spawned."""
    task_group_id: str
    task_group_number: int
    task_group_name: str
    group_name: str
    scratch_folder: str
    """An existing private folder; each slot has a subfolder, created when first needed."""
    run_folder: str
    """Of the agent: each slot has a file of the last attempts that it has begun."""
    handler_modules: tuple[str, ...] = ()
    python_path: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    """Of the plan: added to the environment that the zygote was started with."""
    output_tail_bytes: int = 8 * 1024
    """Size of the tail of stdout, and of stderr, that is kept for each task."""
    max_tasks_per_worker: int | None = None
    """A worker exits after so many tasks; the agent starts another in its slot. None: no limit."""
    cpusets: str | None = None
    """Workers with cores are confined to them by cpuset cgroups whose names begin so. None: by affinity."""
    max_processes_per_worker: int = 4096
    """Processes and threads of a task."""


class Spawn(Packet, frozen=True):
    """Start the worker of this slot. ``cpus`` None: not pinned. The slot's last worker has exited."""

    slot: int
    generation: int
    cpus: tuple[int, ...] | None = None


class KillWorker(Packet, frozen=True):
    """Send SIGKILL to the worker and its descendants; :class:`Exited` follows. Ignored if unknown."""

    slot: int
    generation: int


AgentToZygote = Setup | Spawn | KillWorker


# --- zygote to agent ----------------------------------------------------------------------------


class Ready(Packet, frozen=True):
    """The handler modules are imported; workers can be spawned."""

    pid: int
    forks: bool
    """False: a module started threads or ZeroMQ, so every worker is a new interpreter (P12)."""
    no_fork_reason: str | None
    import_seconds: float


class ImportFailed(Packet, frozen=True):
    """A handler module cannot be imported. The last packet: the zygote exits with status 3."""

    module: str
    message: str
    traceback: str


class Spawned(Packet, frozen=True):
    """The worker process runs; its Hello follows over ZeroMQ."""

    slot: int
    generation: int
    pid: int


class SpawnFailed(Packet, frozen=True):
    """No worker was started: no memory or process is free, or the slot's last worker still exists."""

    slot: int
    generation: int
    message: str


class ProcessUsage(msgspec.Struct, array_like=True, frozen=True):
    """Resource usage of the process and of those it waited for. Source: getrusage(2)."""

    user_seconds: float
    system_seconds: float
    max_rss_bytes: int


class Exited(Packet, frozen=True):
    """The worker and all its descendants are dead and reaped."""

    slot: int
    generation: int
    pid: int
    wait_status: int
    """As of ``waitpid``; see ``ExitReason.from_wait_status``."""
    usage: ProcessUsage
    leftovers: int = 0
    """Number of its leftover processes that were killed; -1: some survived for 5 s."""
    stderr_tail: str = ""
    """The tail of the stderr of its handler, with the traceback of a crash."""
    running: AttemptKey | None = None
    """The attempt it ran. Certain, while its last TaskStarted may have been lost."""


ZygoteToAgent = Ready | ImportFailed | Spawned | SpawnFailed | Exited

_P = TypeVar("_P")
_encoder = msgspec.msgpack.Encoder()
_to_zygote: msgspec.msgpack.Decoder[AgentToZygote] = msgspec.msgpack.Decoder(AgentToZygote)
_to_agent: msgspec.msgpack.Decoder[ZygoteToAgent] = msgspec.msgpack.Decoder(ZygoteToAgent)


def encode(packet: AgentToZygote | ZygoteToAgent) -> bytes:
    """Encode one packet.

    Raises:
        ZygoteProtocolError: it is longer than MAX_PACKET_BYTES.
    """
    data = _encoder.encode(packet)
    if len(data) > MAX_PACKET_BYTES:
        kind = type(packet).__name__
        raise ZygoteProtocolError(f"{kind} has {len(data)} bytes; the limit is {MAX_PACKET_BYTES}")
    return data


def decode_for_zygote(data: bytes) -> AgentToZygote:
    """Decode a packet of the agent.

    Raises:
        ZygoteProtocolError: not a packet of this direction.
    """
    return _decode(_to_zygote, data)


def decode_for_agent(data: bytes) -> ZygoteToAgent:
    """Decode a packet of the zygote.

    Raises:
        ZygoteProtocolError: not a packet of this direction.
    """
    return _decode(_to_agent, data)


def _decode(decoder: msgspec.msgpack.Decoder[_P], data: bytes) -> _P:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ZygoteProtocolError(f"not a packet of this direction: {error}") from None

"""The store: the record that every function of ``mitosis.store`` takes, opened once per process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Self
from uuid import UUID

from mitosis.chunk_size import ChunkSize
from mitosis.contracts.accounts import Role, User
from mitosis.contracts.host_failures import QUARANTINE_AFTER
from mitosis.contracts.lease_settings import (
    DEFAULT_TERMS,
    MOVES_PER_HOUR,
    STARVE_AFTER,
    LeaseTerms,
)
from mitosis.contracts.liveness import HOST_LOST_AFTER, STUCK_AFTER, SUSPECT_AFTER
from mitosis.contracts.outcome import MAX_TERMINATIONS
from mitosis.contracts.retention import DEFAULT_RETENTION, RetentionTerms
from mitosis.store.cache import ExpiringCache
from mitosis.store.kept import Kept
from mitosis.store.pg.database import Database
from mitosis.store.pg.revision import require_revision
from mitosis.store.pg.timing import Observe
from mitosis.store.pg.wake import Wake

ACCESS_SECONDS = 5.0
"""Age at which a cached account, role or token version is read again."""
QUEUE_COUNT_SECONDS = 1.0
"""Age at which cached queue lengths are read again. With N API processes the limits can be exceeded by N
seconds of submits."""
CONTACT_EVERY_SECONDS = 1.0
"""Contact with one host is recorded at most once per this many seconds."""
CONCURRENT_HASHES = 2
"""Each password hash takes 64 MB and tens of milliseconds of a core, and logging in needs no account."""

FIRST_STEP_CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Limits on unfinished tasks: ready, running and waiting for another attempt."""

    per_group: int = 10_000_000
    per_user: int = 10_000_000
    """In all groups that one user has created."""
    total: int = 20_000_000


@dataclass(frozen=True, slots=True)
class QueueCount:
    """Unfinished tasks in the groups of one user, and in all groups."""

    mine: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Where PostgreSQL is, and the deployment's intervals and limits."""

    database_url: str
    """libpq URL of a migrated database."""
    direct_url: str | None = None
    """URL of the server behind the pooler that ``database_url`` names."""
    pool_size: int = 10
    listens: bool = True
    """False: a process that serves no long polls needs no LISTEN connection."""
    queue_limits: QueueLimits = field(default_factory=QueueLimits)
    host_lost_after: timedelta = HOST_LOST_AFTER
    suspect_after: timedelta = SUSPECT_AFTER
    lease_terms: LeaseTerms = DEFAULT_TERMS
    moves_per_hour: int = MOVES_PER_HOUR
    starve_after: timedelta = STARVE_AFTER
    quarantine_after: int = QUARANTINE_AFTER
    stuck_after: timedelta = STUCK_AFTER
    max_terminations: int = MAX_TERMINATIONS
    retention: RetentionTerms = DEFAULT_RETENTION
    observe_statement: Observe | None = None
    """Called with the name and the seconds of each statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The database, the deployment's intervals and limits, and the caches of this process."""

    database: Database
    wake: Wake | None = None
    """None: long polls read once and answer."""
    queue_limits: QueueLimits = field(default_factory=QueueLimits)
    host_lost_after: timedelta = HOST_LOST_AFTER
    """Silence after which a host is lost; a task group may have its own. At least 10 s."""
    suspect_after: timedelta = SUSPECT_AFTER
    """Silence after which a host is offered nothing new."""
    lease_terms: LeaseTerms = DEFAULT_TERMS
    """How long hosts stay with task groups that have no settings of their own (C-31, C-35)."""
    moves_per_hour: int = MOVES_PER_HOUR
    """So often in an hour a host is taken from one task group for another (C-36)."""
    starve_after: timedelta = STARVE_AFTER
    """A task group without any host for so long goes before all (C-31). Zero: never."""
    quarantine_after: int = QUARANTINE_AFTER
    """So many different tasks in a row fail on a host before it is suspected (C-33)."""
    stuck_after: timedelta = STUCK_AFTER
    """How long a lease may make no progress while work is claimable (protocol P7)."""
    max_terminations: int = MAX_TERMINATIONS
    """Deaths by SIGTERM or SIGINT in a row that end a task; a task may have its own number (C-29)."""
    retention: RetentionTerms = DEFAULT_RETENTION
    """How long what has ended is kept (C-34)."""

    users: ExpiringCache[UUID, User | None] = field(
        default_factory=lambda: ExpiringCache(ACCESS_SECONDS, 10_000)
    )
    roles: ExpiringCache[tuple[UUID, UUID], Role | None] = field(
        default_factory=lambda: ExpiringCache(ACCESS_SECONDS, 10_000)
    )
    """By user and task group."""
    manager_token_versions: ExpiringCache[UUID, int | None] = field(
        default_factory=lambda: ExpiringCache(ACCESS_SECONDS, 100_000)
    )
    worker_token_versions: ExpiringCache[UUID, int | None] = field(
        default_factory=lambda: ExpiringCache(ACCESS_SECONDS, 100_000)
    )
    """Of worker services."""
    contacts: ExpiringCache[UUID, None] = field(
        default_factory=lambda: ExpiringCache(CONTACT_EVERY_SECONDS, 100_000)
    )
    """Managers whose contact was recorded a moment ago."""
    queue_counts: ExpiringCache[UUID, QueueCount] = field(
        default_factory=lambda: ExpiringCache(QUEUE_COUNT_SECONDS, 1_000)
    )
    """By task group."""
    step_chunks: ChunkSize = field(default_factory=lambda: ChunkSize(first=FIRST_STEP_CHUNK))
    """How many tasks of steps one transaction creates: their task groups are locked until its end."""
    fleet: Kept = field(default_factory=Kept)
    """The facts of decisions, kept between rounds: see ``leases.kept_fleet``."""
    hashing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONCURRENT_HASHES))

    @property
    def listening(self) -> Wake:
        """The waiters, for calls that only a listening process can serve."""
        if self.wake is None:
            raise RuntimeError("this store was opened without a LISTEN connection")
        return self.wake

    @classmethod
    @asynccontextmanager
    async def open(cls, options: StoreOptions) -> AsyncIterator[Self]:
        """Open the pool, and the LISTEN connection if the process listens.

        Raises:
            ConfigurationError: the URL is not one of PostgreSQL, or its schema is older than this version.
            DatabaseUnavailable: PostgreSQL does not answer.
        """
        async with AsyncExitStack() as exits:
            database = await exits.enter_async_context(
                Database.open(
                    options.database_url,
                    pool_size=options.pool_size,
                    direct_url=options.direct_url,
                    observe=options.observe_statement,
                )
            )
            await require_revision(database)
            wake = None
            if options.listens:
                wake = await exits.enter_async_context(Wake.listen(database))
            yield cls(
                database=database,
                wake=wake,
                queue_limits=options.queue_limits,
                host_lost_after=options.host_lost_after,
                suspect_after=options.suspect_after,
                lease_terms=options.lease_terms,
                moves_per_hour=options.moves_per_hour,
                starve_after=options.starve_after,
                quarantine_after=options.quarantine_after,
                stuck_after=options.stuck_after,
                max_terminations=options.max_terminations,
                retention=options.retention,
            )

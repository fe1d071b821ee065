"""The state of the application: store, tokens and Temporal client. The entry point builds it once."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol, TypeAlias
from uuid import UUID

from api.admission import Admission
from api.auth import TokenSigner
from api.logins import LoginLimit
from api.long_polls import LongPolls
from api.metrics import Metrics
from api.storage import Storage
from api.streams import Streams
from api.temporal_ui import TemporalUi
from mitosis.contracts.control import Cancel, Close, Complete, GroupView, Reopen
from mitosis.contracts.lifetimes import TOKEN_LIFETIME
from mitosis.store.processes.live import CommonFields
from mitosis.store.store import Store

Verb: TypeAlias = Close | Reopen | Cancel | Complete


class ControlPlane(Protocol):
    """The calls to Temporal that the API makes: :class:`workflows.client.ControlClient`."""

    async def execute_verb(self, task_group_id: UUID, verb: Verb) -> GroupView:
        """Apply a verb through the group's workflow; return the group after it.

        Raises:
            TemporalUnavailable: no answer in time; the verb may or may not have been applied.
            InvalidTransition, NotFound: as the store's ``apply``.
        """
        ...

    async def check(self) -> None:
        """Make one round trip.

        Raises:
            TemporalUnavailable: no answer.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AppState:
    """Everything that the routes use. Immutable; one per application."""

    store: Store
    signer: TokenSigner
    control: ControlPlane
    temporal_namespace: str
    token_lifetime: timedelta = TOKEN_LIFETIME
    """Lifetime of the tokens from ``POST /login``."""
    admission: Admission = field(default_factory=Admission)
    metrics: Metrics = field(default_factory=Metrics)
    storage: Storage = field(default_factory=Storage)
    long_polls: LongPolls
    streams: Streams
    """They use the same long polls, so that one stop ends both."""
    logins: LoginLimit = field(default_factory=LoginLimit)
    temporal_ui: TemporalUi | None = None
    """None: the Temporal server is not embedded."""
    common_fields: CommonFields = field(default_factory=CommonFields)

"""The API as one part of a process: opens the pool and the listener, builds the app, serves it.

Both ``mitosis up`` and ``mitosis api`` enter :func:`running_api` with plain values.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from api.app import create_app
from api.app_state import AppState, ControlPlane
from api.auth import Subject, TokenSigner
from api.certificate import ServedCertificate
from api.issuing import issue_token
from api.long_polls import LongPolls
from api.metrics import Metrics
from api.owner_socket import OwnersCalls
from api.server import serving, serving_owner
from api.storage import Storage
from api.streams import Streams
from api.temporal_ui import TemporalUi
from mitosis.contracts.accounts import STACK_ADMINISTRATOR
from mitosis.contracts.http import Token
from mitosis.store.dependencies.resolver import resolving_dependencies
from mitosis.store.managers.api_liveness import recording_api_heartbeat
from mitosis.store.processes.live import recording_process
from mitosis.store.runs.runner import carrying_on_runs
from mitosis.store.store import Store, StoreOptions
from mitosis.store.users.accounts import ensure_admin

ADMIN_TOKEN_LIFETIME = timedelta(days=1)
"""Its file is written again all the time while the API runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """The options of the API, set by the entry point."""

    store: StoreOptions
    signing_key: bytes
    """Ed25519, PKCS #8 PEM."""
    temporal_namespace: str
    host: str = "127.0.0.1"
    port: int = 0
    """0 = a free one."""
    stop_after: timedelta = timedelta(seconds=5)
    temporal_ui_url: str | None = None
    """Address of the Web UI of the embedded Temporal server."""
    certificate: ServedCertificate | None = None
    """For https; None: plain HTTP."""
    owner_socket: Path | None = None
    """Where this operating system user needs no token; None: nowhere."""
    database_folder: Path | None = None
    """Folder of the embedded database; None if the database is not ours."""


@dataclass(frozen=True, slots=True)
class RunningApi:
    """A served API."""

    url: str
    app_state: AppState
    certificate: ServedCertificate | None = None


@asynccontextmanager
async def running_api(options: ApiOptions, control: ControlPlane) -> AsyncIterator[RunningApi]:
    """Serve the API while the context is open. The admin account exists from the first start on.

    Raises:
        DatabaseUnavailable: PostgreSQL does not answer.
        ConfigurationError: the address cannot be bound, or the signing key is invalid.
    """
    async with AsyncExitStack() as exits:
        state = await exits.enter_async_context(open_app_state(options, control))
        owner = await ensure_admin(state.store, STACK_ADMINISTRATOR)
        await exits.enter_async_context(recording_api_heartbeat(state.store))
        recorded = recording_process(state.store, "api", state.common_fields)
        await exits.enter_async_context(recorded)
        await exits.enter_async_context(resolving_dependencies(state.store))
        await exits.enter_async_context(carrying_on_runs(state.store))
        certificate = options.certificate
        if certificate is not None:
            state.metrics.show_certificate(lambda: certificate.expires_at)
            await exits.enter_async_context(certificate.watched())
        app = create_app(state)
        if options.owner_socket is not None:
            own = serving_owner(
                OwnersCalls(app, owner.user_id),
                options.owner_socket,
                release=state.long_polls.release,
                stop_after=options.stop_after,
            )
            await exits.enter_async_context(own)
        url = await exits.enter_async_context(
            serving(
                app,
                host=options.host,
                port=options.port,
                release=state.long_polls.release,
                stop_after=options.stop_after,
                tls=None if certificate is None else certificate.context,
            )
        )
        yield RunningApi(url, state, certificate)


@asynccontextmanager
async def open_app_state(options: ApiOptions, control: ControlPlane) -> AsyncIterator[AppState]:
    """Open a store and yield the application state that uses it."""
    signer, long_polls = TokenSigner(options.signing_key), LongPolls()
    metrics = Metrics()
    url = options.temporal_ui_url
    observed = replace(options.store, observe_statement=metrics.observe_statement)
    async with AsyncExitStack() as exits:
        ui = None if url is None else TemporalUi(url)
        if ui is not None:
            exits.push_async_callback(ui.aclose)
        store = await exits.enter_async_context(Store.open(observed))
        await exits.enter_async_context(long_polls.held.checking_tokens(store))
        yield AppState(
            store=store,
            signer=signer,
            control=control,
            metrics=metrics,
            long_polls=long_polls,
            streams=Streams(long_polls),
            temporal_namespace=options.temporal_namespace,
            storage=Storage(options.database_folder),
            temporal_ui=ui,
        )


async def admin_token(state: AppState, lifetime: timedelta = ADMIN_TOKEN_LIFETIME) -> Token:
    """Return a token of the admin account; the entry point keeps it in a file of mode 0600."""
    user = await ensure_admin(state.store, STACK_ADMINISTRATOR)
    return await issue_token(state, Subject("user", user.user_id, user.token_version), lifetime)

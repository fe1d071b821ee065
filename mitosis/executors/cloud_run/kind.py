"""The executors of Cloud Run jobs of one worker service: their configuration, and what they share."""

import re
from collections.abc import Mapping
from typing import Any

import httpx2

from mitosis.contracts.errors import ConfigurationError
from mitosis.executors.cloud_run.executor import CloudRunExecutor, Shared
from mitosis.executors.cloud_run.limiter import Limiter
from mitosis.executors.cloud_run.rest import CloudRun
from mitosis.executors.cloud_run.tokens import MetadataTokens
from mitosis.executors.contract import ServiceFacts

ENDPOINT = "https://run.googleapis.com"
CALLS_PER_SECOND = 100.0
"""Of a process, all attempts together."""
BURST = 10
CALL_SECONDS = 20.0
MAX_CONNECTIONS = 50
NAME = re.compile(r"[a-z][a-z0-9-]{0,61}[a-z0-9]")
EXAMPLES = {"project": "my-project", "location": "europe-west1", "job": "resize"}


class CloudRunKind:
    """Makes executors of the kind ``cloud_run``."""

    def __init__(self, **changes: float) -> None:
        """Make it; ``changes`` has other pauses of :class:`Shared`, for tests."""
        self._endpoint: str | None = None
        self._changes = changes
        self._client: httpx2.AsyncClient | None = None
        self._shared: Shared | None = None

    def check(self, configuration: Mapping[str, Any]) -> None:
        """Check the fields.

        Raises:
            ConfigurationError: names the field and what would be right.
        """
        for field, example in EXAMPLES.items():
            value = configuration.get(field)
            if not isinstance(value, str) or not NAME.fullmatch(value):
                raise ConfigurationError(
                    f"configuration.{field} must be a name of Google Cloud, as {example}, not {value!r:.100}"
                )
        endpoint = configuration.get("endpoint", ENDPOINT)
        if not isinstance(endpoint, str) or not is_safe(endpoint):
            raise ConfigurationError(
                "configuration.endpoint must be an https address, since it is sent access tokens,"
                f" not {endpoint!r:.200}"
            )
        endpoint = endpoint.rstrip("/")
        if self._endpoint not in (None, endpoint):
            raise ConfigurationError(
                f"configuration.endpoint is {endpoint}, and that of another task {self._endpoint}:"
                " give each endpoint a worker service of its own"
            )
        self._endpoint = endpoint

    async def start(self, service: ServiceFacts) -> None:
        del service
        limits = httpx2.Limits(max_connections=MAX_CONNECTIONS)
        self._client = httpx2.AsyncClient(timeout=CALL_SECONDS, limits=limits)
        tokens = MetadataTokens(self._client)
        run = CloudRun(
            self._client, self._endpoint or ENDPOINT, tokens, Limiter(CALLS_PER_SECOND, BURST)
        )
        self._shared = Shared(run, **self._changes)  # type: ignore[arg-type]  # numbers of tests

    def make(self) -> CloudRunExecutor:
        return CloudRunExecutor(self.shared)

    @property
    def shared(self) -> Shared:
        assert self._shared is not None  # noqa: S101 - it is started first
        return self._shared

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def is_safe(endpoint: str) -> bool:
    """Return whether tokens may be sent there: over TLS, or within this machine."""
    try:
        url = httpx2.URL(endpoint)
    except httpx2.InvalidURL:
        return False
    return url.scheme == "https" or (url.scheme == "http" and url.host in {"127.0.0.1", "::1"})

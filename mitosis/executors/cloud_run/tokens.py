"""Access tokens for Google Cloud: from the metadata server of the machine, or from another source."""

import asyncio
import os
import time
from typing import Protocol

import httpx2

METADATA_HOST = "GCE_METADATA_HOST"
"""Environment variable that names another metadata server, as Google's libraries read it."""
TOKEN_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105 - a path
EARLY_SECONDS = 120.0
"""A token is renewed so long before it expires."""


class TokenSource(Protocol):
    """Gives access tokens."""

    async def token(self) -> str:
        """Return a valid token.

        Raises:
            httpx2.HTTPError, ValueError, KeyError: there is none now.
        """
        ...

    def refused(self, token: str) -> None:
        """Give this token no more: it was answered with 401."""
        ...


class MetadataTokens:
    """Tokens of the service account of this machine.

    Source: Google Cloud documentation, "Authenticate workloads with service accounts", metadata server.
    """

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        host = os.environ.get(METADATA_HOST, "metadata.google.internal")
        self._url = f"http://{host}{TOKEN_PATH}"
        self._token, self._until = "", 0.0
        self._once = asyncio.Lock()

    async def token(self) -> str:
        async with self._once:
            if time.monotonic() >= self._until:
                answer = await self._client.get(self._url, headers={"Metadata-Flavor": "Google"})
                answer.raise_for_status()
                fields = answer.json()
                self._token = str(fields["access_token"])
                lifetime = float(fields["expires_in"])
                self._until = time.monotonic() + max(lifetime - EARLY_SECONDS, lifetime / 2)
            return self._token

    def refused(self, token: str) -> None:
        if token == self._token:
            self._until = 0.0

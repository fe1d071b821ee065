"""Limits on failed logins, so that passwords cannot be guessed and guessing cannot occupy the cores.

Failures are counted per user name and address, so that one address cannot lock out a user elsewhere, and
per address over all names. The counters live in the memory of one API process; they are bounded, and a
restart clears them. Behind a proxy all clients share the proxy's address. No rate-limit library is used: it
would have to bound the number of keys and refund attempts that did not fail.
"""

import ipaddress
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from fastapi import Request

from mitosis.contracts.errors import RateLimited, Unavailable

NAME_BURST, NAME_EVERY = 5, timedelta(seconds=12)
"""Failures of one user name from one address: the burst, and the interval for one more."""
ADDRESS_BURST, ADDRESS_EVERY = 30, timedelta(seconds=2)
"""Failures of one address, for all names together."""
KEYS = 10_000
LONGEST_NAME = 100
"""Longer user names do not exist; they are cut, so that keys are small."""

Clock = Callable[[], float]


class Allowance:
    """A rate limit per key: ``burst`` uses at once, then one per ``every``; at most :data:`KEYS` keys.

    A key is stored as one number: the time when its allowance is full again (generic cell rate algorithm).
    If there are too many keys, the least recently used one is dropped.
    """

    def __init__(self, burst: int, every: timedelta, clock: Clock) -> None:
        self._every = every.total_seconds()
        self._spread = (burst - 1) * self._every
        self._clock = clock
        self._whole_at: dict[str, float] = {}

    def wait_seconds(self, key: str) -> float:
        """Return the seconds until the key may be used; 0 = now."""
        now = self._clock()
        return max(0.0, self._whole_at.get(key, now) - now - self._spread)

    def take(self, key: str) -> None:
        """Use the key once."""
        now = self._clock()
        whole_at = max(now, self._whole_at.pop(key, now)) + self._every
        if len(self._whole_at) >= KEYS:
            del self._whole_at[next(iter(self._whole_at))]
        self._whole_at[key] = whole_at

    def give_back(self, key: str) -> None:
        """Undo one use."""
        if key in self._whole_at:
            self._whole_at[key] -= self._every

    def __len__(self) -> int:
        return len(self._whole_at)


class LoginLimit:
    """The failed logins of one API process."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.by_name = Allowance(NAME_BURST, NAME_EVERY, clock)
        self.by_address = Allowance(ADDRESS_BURST, ADDRESS_EVERY, clock)

    @contextmanager
    def attempt(self, username: str, address: str) -> Iterator[None]:
        """Count one login as failed while it runs, because guesses may run in parallel.

        A login that succeeds, or cannot be checked, no longer counts.

        Raises:
            RateLimited: too many logins have failed; ``facts["retry_after_seconds"]`` says how long to wait.
        """
        network = network_of(address)
        uses = ((self.by_name, f"{username[:LONGEST_NAME]} {network}"), (self.by_address, network))
        wait = math.ceil(max(allowance.wait_seconds(key) for allowance, key in uses))
        if wait > 0:
            raise RateLimited(
                f"too many logins have failed; try again in {wait} s", retry_after_seconds=wait
            )
        for allowance, key in uses:
            allowance.take(key)
        failed = True
        try:
            yield
            failed = False
        except Unavailable:
            failed = False
            raise
        finally:
            if not failed:
                for allowance, key in uses:
                    allowance.give_back(key)


def network_of(address: str) -> str:
    """Return the network of one client: an IPv4 address, or the /64 of an IPv6 address (RFC 6177)."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def client_address(request: Request) -> str:
    """Return the address that a request comes from; empty if it has none."""
    return request.client.host if request.client else ""

"""Divides limited amounts of the API between its callers: no caller can take all of one."""

from typing import TypeAlias
from uuid import UUID

Holder: TypeAlias = tuple[str, UUID | str]
"""The kind and id of a user, manager or worker service; or ``address`` and the network of a client."""


class Share:
    """An amount in use, by holder. A holder may have at most as much as it leaves free for the others.

    The first gets at most half of all, the next at most half of what is left, and so on (dynamic
    thresholds, Choudhury and Hahne 1998): a limit per holder that is generous while few use the API.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.used = 0
        self._held: dict[Holder, int] = {}

    def take(self, holder: Holder, size: int = 1) -> bool:
        """Take so much more, or return False and take nothing."""
        held = self._held.get(holder, 0) + size
        if held > self._most - self.used - size:
            return False
        self.used += size
        self._held[holder] = held
        return True

    def give_back(self, holder: Holder, size: int = 1) -> None:
        """End the use of so much that was taken."""
        self.used -= size
        left = self._held[holder] - size
        if left:
            self._held[holder] = left
        else:
            del self._held[holder]

    def held(self, holder: Holder) -> int:
        return self._held.get(holder, 0)

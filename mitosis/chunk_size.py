"""How many rows a statement may change, so that it takes about 50 ms. Pure."""

SECONDS = 0.05
"""What needs a lock of such a statement waits no longer, as a rule."""


class ChunkSize:
    """Adapts the number of rows to the time that the chunks before have taken."""

    def __init__(self, first: int = 200, most: int = 10_000, seconds: float = SECONDS) -> None:
        self.rows = first
        self._most = most
        self._seconds = seconds

    def took(self, seconds: float) -> None:
        """Learn from a chunk of ``rows`` rows, or fewer, that has taken so long."""
        if seconds > self._seconds:
            self.rows = max(int(self.rows * max(self._seconds / seconds, 0.1) * 0.8), 1)
        elif seconds < self._seconds / 2:
            self.rows = min(self.rows + self.rows, self._most)

    def failed(self) -> None:
        """Learn from a chunk that did not end, perhaps because it took too long."""
        self.rows = max(self.rows // 10, 1)

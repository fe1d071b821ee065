"""The named tasks that resemble one which does not exist. Standard library only."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TypeAlias

Key: TypeAlias = tuple[str, str, str]
"""Namespace, name and version."""

LEAST_RATIO = 0.6
"""Names that differ more do not resemble each other."""


def nearest(wanted: Key, known: Sequence[Key], most: int = 3) -> list[Key]:
    """Return the known named tasks that resemble the wanted one, the nearest first."""
    rated = [(_likeness(wanted, key), key) for key in known]
    near = sorted((item for item in rated if item[0] > 0), key=lambda item: (-item[0], item[1]))
    return [key for _, key in near[:most]]


def _likeness(wanted: Key, key: Key) -> float:
    """Rate a named task: names count most, then namespaces, then versions; 0 = no resemblance."""
    namespace, name, version = (
        SequenceMatcher(None, one, other).ratio() for one, other in zip(wanted, key, strict=True)
    )
    if name < LEAST_RATIO:
        return 0.0
    return 100 * name + 10 * namespace + version

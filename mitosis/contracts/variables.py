"""The environment variables of Mitosis itself: some are secrets, so no other process inherits them."""

from collections.abc import Mapping

PREFIX = "MITOSIS_"


def without_settings(variables: Mapping[str, str], *prefixes: str) -> dict[str, str]:
    """Return the variables without those of Mitosis, and without names that start with ``prefixes``."""
    refused = (PREFIX, *prefixes)
    return {name: value for name, value in variables.items() if not name.startswith(refused)}

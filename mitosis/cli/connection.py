"""Writes the files that lead programs to a running stack and to a login.

They are read in :mod:`mitosis.client.finding`, whose names this module exports too.
"""

import json
from pathlib import Path

from mitosis.client.finding import (
    FILE_NAME,
    START,
    StackConnection,
    Target,
    check_url,
    data_dir_of,
    find_api,
    read_connection,
    read_token,
    stored_token,
    stored_tokens,
    tokens_path,
)

__all__ = [
    "FILE_NAME",
    "START",
    "StackConnection",
    "Target",
    "check_url",
    "data_dir_of",
    "find_api",
    "read_connection",
    "read_token",
    "remove_connection",
    "store_token",
    "stored_token",
    "tokens_path",
    "write_connection",
]


def write_connection(data_dir: Path, connection: StackConnection) -> None:
    """Record that a stack serves this data folder; the caller holds its lock."""
    from mitosis.embedded.data_folder import write_private

    write_private(data_dir / FILE_NAME, connection.model_dump_json(indent=1).encode())


def remove_connection(data_dir: Path) -> None:
    """Record that no stack serves this data folder. Idempotent."""
    (data_dir / FILE_NAME).unlink(missing_ok=True)


def store_token(api_url: str, token: str | None) -> Path:
    """Store the token for this address in a 0600 file, or delete it with None; return the file."""
    from mitosis.embedded.data_folder import own_folder, write_private

    path, key = tokens_path(), api_url.rstrip("/")
    tokens = {url: kept for url, kept in stored_tokens().items() if url != key}
    if token is not None:
        tokens[key] = token
    own_folder(path.parent)
    write_private(path, json.dumps(tokens, indent=1).encode())
    return path

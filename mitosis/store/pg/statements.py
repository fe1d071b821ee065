"""Loads the hand-written SQL: ``load("tasks/claim.sql")["claim"]`` is the statement under ``-- name: claim``.

A file holds statements one after the other, each under a ``-- name:`` line and a comment that says
what it does and why it is safe. The comment is kept, after the names of file and statement: both show in
pg_stat_activity, and :mod:`mitosis.store.pg.timing` reads the names.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import LiteralString

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def load(file: str) -> Mapping[str, LiteralString]:
    """Return all statements of ``mitosis/store/<file>`` by name; ``file`` is ``"folder/name.sql"``.

    Raises:
        ValueError: text before the first name, or a name twice.
    """
    text = files("mitosis.store").joinpath(file).read_text()
    head, *rest = _NAME.split(text)
    names, bodies = rest[::2], rest[1::2]
    if re.sub(r"^--.*$", "", head, flags=re.MULTILINE).strip() or len(set(names)) != len(names):
        raise ValueError(f"{file} must hold statements under distinct -- name: lines")
    # The text is part of this installation, never of a request.
    return {
        name: f"/* {file} {name} */\n{body.strip()}"
        for name, body in zip(names, bodies, strict=True)
    }

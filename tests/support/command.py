"""Runs one `mitosis` command line inside the test process, without its terminal."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from mitosis.cli import execute


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it wrote on standard output, which must be one JSON document."""
        return json.loads(self.out)

    @property
    def problem(self) -> Any:
        """What it wrote on standard error, which must be one JSON document on one line."""
        (line,) = self.err.splitlines()
        return json.loads(line)


def mitosis(*words: str, stdin: str | bytes = "") -> Ran:
    """As typing ``mitosis`` and the words, with pipes instead of a terminal."""
    out, err = io.StringIO(), io.StringIO()
    given = stdin.encode() if isinstance(stdin, str) else stdin
    reading = io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "stdin", reading):
        status = execute(words)
    return Ran(int(status), out.getvalue(), err.getvalue())

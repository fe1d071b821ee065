"""Commands that read JSON from standard input and write their result as JSON to standard output."""

import base64
import json
import os
from collections import Counter
from typing import Any

from mitosis.contracts.json_depth import too_deep_text
from mitosis.contracts.outcome import FailureKind
from mitosis.worker.command import Streams
from mitosis.worker.output import Tail, end_of, memory_file
from mitosis.worker.report import MAX_RESULT_BYTES, Ended, ResultError, encode_result

_WHAT = "what the command wrote to standard output"


class Exchange:
    """The standard streams of one such command; used as a context."""

    def __init__(self, document: bytes, streams: Streams) -> None:
        """Put the document into memory; keep as much of stdout as a result may have."""
        self._stdout = streams.stdout
        self._tail_bytes = streams.stdout.tail_bytes
        self._input = memory_file("input")
        os.write(self._input, document)
        os.lseek(self._input, 0, os.SEEK_SET)
        self.streams = Streams(self._input, streams.stdout, streams.stderr)

    def __enter__(self) -> "Exchange":
        self._stdout.tail_bytes = MAX_RESULT_BYTES
        return self

    def __exit__(self, *_: object) -> None:
        self._stdout.tail_bytes = self._tail_bytes
        os.close(self._input)

    def conclude(self, ended: Ended) -> None:
        """Make the output of a command that has succeeded its result; shorten that of another."""
        if ended.kind is not None:
            ended.stdout = _shortened(ended.stdout, self._tail_bytes)
            return
        try:
            ended.result = _result(ended.stdout)
        except ResultError as error:
            ended.kind, ended.message = FailureKind.RESULT_NOT_STORABLE, str(error)
            ended.stdout = _shortened(ended.stdout, self._tail_bytes)
        else:
            ended.stdout = Tail("", 0)


def _result(output: Tail) -> bytes | None:
    """Return the JSON that a command has written; None if it has written nothing.

    Raises:
        ResultError: it is not JSON, or cannot be stored.
    """
    if output.total_bytes > MAX_RESULT_BYTES:
        raise ResultError(
            f"the command wrote {output.total_bytes:,} bytes to standard output as its result; the limit is"
            f" {MAX_RESULT_BYTES:,}"
        )
    if not output.text.strip() and output.exact is None:
        return None
    try:
        value = json.loads(_bytes(output), object_pairs_hook=_distinct)
    except RecursionError:
        raise ResultError(f"{_WHAT} {too_deep_text()}") from None
    except ValueError as error:
        raise ResultError(f"{_WHAT} is not JSON: {error}") from None
    return encode_result(value, _WHAT)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((double, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ResultError(f"{_WHAT} has the key {double!r:.100} twice in one object")
    return found


def _shortened(output: Tail, tail_bytes: int) -> Tail:
    kept = _bytes(output)[-tail_bytes:] if tail_bytes else b""
    return end_of(kept, output.total_bytes)


def _bytes(output: Tail) -> bytes:
    return output.text.encode() if output.exact is None else base64.b64decode(output.exact)

"""What the host keeps of live output."""

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.following import OutputEvent
from mitosis.execution.following import BATCH_BYTES, PIECE_BYTES, Pieces
from mitosis.ipc.messages import TaskOutput


def event(offset: int, data: bytes, attempt: int = 1) -> OutputEvent:
    return OutputEvent.model_construct(
        kind="output", task_id=7, attempt=attempt, stream="stdout", offset=offset, data=data
    )


def test_the_host_keeps_the_newest_of_each_stream_and_no_more() -> None:
    pieces = Pieces()
    pieces.add(TaskOutput(AttemptKey(7, 1), "stdout", 0, b"a" * PIECE_BYTES))
    pieces.add(TaskOutput(AttemptKey(7, 1), "stdout", PIECE_BYTES, b"b" * 10))
    pieces.add(TaskOutput(AttemptKey(7, 1), "stderr", 5, b"late"))
    pieces.add(TaskOutput(AttemptKey(7, 1), "stderr", 20, b"later"))
    out, err = pieces.take()
    assert (out.offset, len(out.data), out.data[-10:]) == (10, PIECE_BYTES, b"b" * 10)
    assert (err.offset, err.data) == (20, b"later")
    assert not pieces
    for number in range(40):
        pieces.add(TaskOutput(AttemptKey(number, 1), "stdout", 0, b"x" * PIECE_BYTES))
    assert sum(len(chunk.data) for chunk in pieces.take()) <= BATCH_BYTES
    assert pieces

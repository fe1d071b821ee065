"""A client that follows output sees each byte once."""

from mitosis.client.following import OutputSeen
from mitosis.contracts.following import OutputEvent


def event(offset: int, data: bytes, attempt: int = 1) -> OutputEvent:
    return OutputEvent.model_construct(
        kind="output", task_id=7, attempt=attempt, stream="stdout", offset=offset, data=data
    )


def test_a_client_that_reconnects_sees_nothing_twice() -> None:
    seen = OutputSeen()
    came = [(0, b"abc"), (0, b"abcd"), (0, b"a"), (9, b"x")]
    fresh = [seen.fresh(event(*chunk)) for chunk in came]
    assert [(e.offset, e.skipped, e.data) for e in fresh if e] == [
        (0, None, b"abc"),
        (3, None, b"d"),
        (9, 5, b"x"),
    ]
    end = OutputEvent(kind="end")
    assert seen.fresh(end) is end

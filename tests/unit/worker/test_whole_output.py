"""The whole output of a command: in order, without gaps, bounded, and never waited for without end."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitosis.contracts.attempt import AttemptKey
from mitosis.ipc.messages import OutputTaken, TaskOutput
from mitosis.worker import whole_output
from mitosis.worker.output import PipeOutput
from mitosis.worker.whole_output import STALL_SECONDS, WholeOutput
from tests.support.examples import examples

KEY = AttemptKey(7, 2)
TAIL = 16
WINDOW = 64


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A small window, small pieces, and a clock of ours."""
    clock = Clock()
    monkeypatch.setattr(whole_output, "WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(whole_output, "PIECE_BYTES", 10)
    monkeypatch.setattr(whole_output, "time", clock)
    return clock


@contextmanager
def pipes() -> Iterator[tuple[PipeOutput, PipeOutput]]:
    both = PipeOutput(TAIL), PipeOutput(TAIL)
    try:
        yield both
    finally:
        for pipe in both:
            os.close(pipe.read_fd)
            os.close(pipe.write_fd)


class Reader:
    """Takes what was sent, in order; what it has of each stream."""

    def __init__(self) -> None:
        self.queue: list[TaskOutput] = []
        self.got = {"stdout": b"", "stderr": b""}

    def take(self, whole: WholeOutput) -> None:
        message = self.queue.pop(0)
        assert message.whole
        assert message.key == KEY
        assert message.offset == len(self.got[message.stream]), "a gap, or twice"
        self.got[message.stream] += message.data
        position = message.offset + len(message.data)
        whole.taken(OutputTaken(KEY, message.stream, position))


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([0, 1]), st.binary(max_size=50)),
        st.just("take"),
        st.just("drop"),
    ),
    max_size=30,
)


@settings(max_examples=examples(30))
@given(steps)
def test_what_arrives_has_no_gap_and_with_the_tail_it_is_everything(
    steps: list[tuple[int, bytes] | str],
) -> None:
    with pipes() as both:
        reader, written = Reader(), [b"", b""]
        whole = WholeOutput(reader.queue.append)
        whole.begin(KEY, both)
        for step in steps:
            if isinstance(step, tuple):
                index, data = step
                written[index] += data
                os.write(both[index].write_fd, data)
                both[index].read()
            elif step == "drop":
                whole.taken(OutputTaken(KEY, "stdout", 0, dropped=True))
            elif reader.queue:
                reader.take(whole)
            whole.pump()
            on_the_way = sum(len(message.data) for message in reader.queue)
            assert on_the_way <= 2 * (WINDOW + 50)
        tails = [pipe.take() for pipe in both]
        whole.finish()
        while whole.undelivered:
            reader.take(whole)
        whole.end()
        for name, data, tail in zip(reader.got, written, tails, strict=True):
            assert data.startswith(reader.got[name])
            assert tail.total_bytes == len(data)
            if "drop" not in steps:
                kept = len(data) <= TAIL
                assert reader.got[name] == (b"" if kept else data)
        assert not any(pipe.paused for pipe in both)


def test_a_full_stream_pauses_until_it_is_taken() -> None:
    with pipes() as both:
        reader = Reader()
        whole = WholeOutput(reader.queue.append)
        whole.begin(KEY, both)
        os.write(both[0].write_fd, b"x" * 1000)
        both[0].read()
        whole.pump()
        assert both[0].paused
        assert not both[1].paused
        os.write(both[0].write_fd, b"y")
        both[0].read()
        assert both[0].since(1000) == (1000, b"")  # nothing was read
        while reader.queue:
            reader.take(whole)
        assert not both[0].paused
        both[0].read()
        assert both[0].take().total_bytes == 1001
        whole.finish()
        while whole.undelivered:
            reader.take(whole)
        assert reader.got["stdout"] == b"x" * 1000 + b"y"


def test_nothing_waits_for_a_reader_that_is_gone(clock: Clock) -> None:
    with pipes() as both:
        whole = WholeOutput(lambda _: None)
        whole.begin(KEY, both)
        os.write(both[0].write_fd, b"x" * 1000)
        both[0].read()
        whole.pump()
        due = whole.due_at()
        assert due is not None
        assert due <= clock.now + STALL_SECONDS
        whole.taken(OutputTaken(KEY, "stdout", 0))  # a sign of life
        clock.now += STALL_SECONDS - 1
        whole.pump()
        assert whole.undelivered
        clock.now += 2
        whole.pump()
        assert not whole.undelivered
        assert not both[0].paused


def test_an_ended_command_is_not_kept_by_its_output() -> None:
    with pipes() as both:
        whole = WholeOutput(lambda _: None)
        whole.begin(KEY, both)
        os.write(both[0].write_fd, b"x" * 100)
        both[0].take()
        whole.stop_waiting()
        assert whole.undelivered  # while it runs, a cancellation drops nothing
        whole.finish()
        whole.stop_waiting()
        assert not whole.undelivered

"""Tails of output: exact counts, bounded memory, text that can be stored."""

import os
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.contracts.task_output import kept_bytes
from mitosis.worker.output import MemoryOutput, PipeOutput, end_of, memory_file

TAIL = 8192


@pytest.fixture
def pipe() -> Iterator[PipeOutput]:
    output = PipeOutput(TAIL)
    yield output
    os.close(output.read_fd)
    os.close(output.write_fd)


@pytest.fixture
def memory() -> Iterator[MemoryOutput]:
    output = MemoryOutput(memory_file("stdout"), TAIL)
    yield output
    os.close(output.fd)


def test_a_pipe_gives_text_and_count_once(pipe: PipeOutput) -> None:
    os.write(pipe.write_fd, b"hello\n")
    assert (pipe.take().text, pipe.take().text) == ("hello\n", "")


def test_a_pipe_keeps_the_end_and_counts_all(pipe: PipeOutput) -> None:
    written = b""
    for number in range(100):
        written += (line := b"%09d\n" % number * 400)
        os.write(pipe.write_fd, line)
        pipe.read()
    tail = pipe.take()
    assert tail.total_bytes == len(written)
    assert tail.text == written[-TAIL:].decode()


def test_a_tail_of_no_bytes_still_counts(pipe: PipeOutput) -> None:
    pipe.tail_bytes = 0
    os.write(pipe.write_fd, b"x" * 1000)
    tail = pipe.take()
    assert (tail.text, tail.total_bytes) == ("", 1000)


def test_memory_keeps_the_end_and_counts_all(memory: MemoryOutput) -> None:
    os.write(memory.fd, b"a" * 100_000 + b"end")
    tail = memory.take()
    assert (tail.total_bytes, len(tail.text), tail.text[-4:]) == (100_003, TAIL, "aend")
    assert memory.take().total_bytes == 0


def test_memory_is_given_back_while_output_goes_on(memory: MemoryOutput) -> None:
    for _ in range(64):
        os.write(memory.fd, b"b" * 1_000_000)
        memory.trim()
    held = os.fstat(memory.fd).st_blocks * 512
    assert held < 64 * 1024
    tail = memory.take()
    assert (tail.total_bytes, tail.text) == (64_000_000, "b" * TAIL)


@given(st.binary(max_size=64))
def test_whatever_a_task_writes_becomes_text_that_postgresql_stores(data: bytes) -> None:
    for more in (0, 1):
        text = end_of(data, len(data) + more).text
        assert "\0" not in text
        assert text.encode().decode() == text


@given(st.binary(max_size=64) | st.text(max_size=20).map(str.encode))
def test_its_bytes_come_back_exactly_through_json(data: bytes) -> None:
    """Also NUL, halves of characters, and U+FFFD that was written as such."""
    kept = end_of(data, len(data))
    sent = msgspec.json.encode({"stdout": kept.text, "stdout_base64": kept.exact})
    assert "\0" not in kept.text
    assert kept_bytes(msgspec.json.decode(sent), "stdout") == data
    assert (kept.exact is None) == (kept.text.encode() == data)


def test_a_cut_tail_that_is_no_text_has_its_bytes_too() -> None:
    data = b"\xa9\xff\0end"  # begins with the second half of a character
    kept = end_of(data, 100)
    assert (kept.text, kept_bytes({"stdout_base64": kept.exact}, "stdout")) == (
        "\ufffd\ufffdend",
        b"\xff\0end",
    )


@given(st.text(alphabet="aä€😀", min_size=1), st.integers(1, 8))
def test_a_character_cut_in_half_is_dropped_and_not_replaced(text: str, drop: int) -> None:
    data = text.encode()[drop:]
    kept = end_of(data, len(text.encode()) + 1)
    assert "\ufffd" not in kept.text
    assert kept.exact is None

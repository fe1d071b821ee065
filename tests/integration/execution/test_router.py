"""The ROUTER: who may speak, what is acknowledged, what happens to the rest."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from mitosis.execution.router import Router, peer_pid
from mitosis.ipc.codec import decode_for_worker, encode
from mitosis.ipc.endpoints import last_words_identity, worker_identity
from mitosis.ipc.messages import Acknowledge, Goodbye, Hello, Pause, RunTasks, WorkerToManager
from tests.support.agents import until


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[Router]:
    router = Router(f"ipc://{tmp_path}/workers")
    yield router
    router.close()


@pytest.fixture
def connect(router: Router) -> Iterator[Any]:
    context = zmq.Context()
    sockets = []

    def open_dealer(name: bytes) -> Any:
        dealer = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.IDENTITY, name)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(router.endpoint)
        sockets.append(dealer)
        return dealer

    yield open_dealer
    for one in sockets:
        one.close()
    context.term()


class Heard:
    def __init__(self) -> None:
        self.messages: list[tuple[int, int, WorkerToManager]] = []

    def __call__(self, *message: Any) -> None:
        self.messages.append(message)

    async def until(self, count: int) -> None:
        await until(lambda: len(self.messages) >= count)


def hello(slot: int = 0, generation: int = 0) -> bytes:
    return encode(Hello(slot, generation, os.getpid(), (0,)))


async def until_refused(caplog: pytest.LogCaptureFixture, event: str) -> None:
    await until(lambda: event in caplog.messages)


@pytest.mark.parametrize("early", [True, False])
async def test_an_expected_process_is_heard(router: Router, connect: Any, early: bool) -> None:
    heard = Heard()
    if not early:
        router.expect(0, 0, os.getpid(), heard)
    connect(b"0:0").send(hello())
    if early:  # its hello overtakes the zygote's word of it
        await until(lambda: b"0:0" in router._early)
        assert not heard.messages
        router.expect(0, 0, os.getpid(), heard)
    await heard.until(1)
    assert heard.messages[0][:2] == (0, 0)


async def test_another_process_is_refused(
    router: Router, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    router.expect(0, 0, os.getppid(), heard)
    dealer = connect(b"0:0")
    dealer.send(hello())
    await until_refused(caplog, "peer.refused")
    dealer.send(encode(Goodbye(0, 0)))
    dealer.send(b"\x01nonsense")
    await until_refused(caplog, "frame.refused")
    assert not heard.messages


async def test_a_process_speaks_for_itself_only(
    router: Router, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    router.expect(0, 0, os.getpid(), heard)
    router.expect(1, 0, os.getpid(), heard)
    connect(b"0:0").send(hello(slot=1))
    await until_refused(caplog, "peer.refused")
    assert not heard.messages


async def test_a_process_of_another_user_is_refused(router: Router, tmp_path: Path) -> None:
    assert peer_pid("localhost:1000:1000:77", uid=1000) == 77
    assert peer_pid("localhost:1001:1000:77", uid=1000) is None
    assert peer_pid("None", uid=1000) is None


async def test_frames_of_another_version_are_refused(
    router: Router, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    router.expect(0, 0, os.getpid(), Heard())
    dealer = connect(b"0:0")
    dealer.send(b"\x7f" + hello()[1:])
    await until_refused(caplog, "frame.refused")
    dealer.send_multipart([hello(), b"more"])
    await until(lambda: caplog.messages.count("frame.refused") == 2)


@pytest.mark.spec("S002-100")
async def test_control_messages_are_acknowledged_or_time_out(router: Router, connect: Any) -> None:
    heard = Heard()
    router.expect(0, 0, os.getpid(), heard)
    dealer = connect(b"0:0")
    dealer.send(hello())
    await heard.until(1)
    asked = asyncio.create_task(router.control(0, 0, Pause))
    await until(lambda: dealer.poll(0))
    message = decode_for_worker(dealer.recv())
    assert isinstance(message, Pause)
    dealer.send(encode(Acknowledge(message.message_id)))
    assert await asked
    assert not await router.control(0, 0, Pause, seconds=0.05)
    assert not await router.control(7, 0, Pause)  # nobody there: known at once


async def test_a_message_to_a_dead_worker_is_not_an_error(router: Router) -> None:
    assert not router.send(3, 0, RunTasks(()))


async def test_a_burst_is_drained_whole_and_in_order(router: Router, connect: Any) -> None:
    heard = Heard()
    router.expect(0, 0, os.getpid(), heard)
    dealer = connect(b"0:0")
    dealer.send(hello())
    for n in range(5000):
        dealer.send(encode(Goodbye(0, n)))
    await heard.until(5001)
    said = [m.generation for _, _, m in heard.messages if isinstance(m, Goodbye)]
    assert said == list(range(5000))


async def test_a_forgotten_worker_is_not_heard_again(router: Router, connect: Any) -> None:
    heard = Heard()
    router.expect(0, 0, os.getpid(), heard)
    dealer = connect(b"0:0")
    dealer.send(hello())
    await heard.until(1)
    router.forget(0, 0)
    dealer.send(encode(Goodbye(0, 0)))
    router.expect(1, 0, os.getpid(), heard)
    connect(b"1:0").send(hello(slot=1))
    await heard.until(2)
    assert [slot for slot, _, _ in heard.messages] == [0, 1]


async def test_a_process_whose_socket_a_task_has_closed_is_heard_on_another(
    router: Router, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    router.expect(0, 0, os.getpid(), heard)
    connect(b"0:0").send(hello())
    await heard.until(1)
    again = connect(last_words_identity(0, 0))
    again.send(hello())
    again.send(encode(Goodbye(0, 0)))
    await heard.until(2)
    assert heard.messages[1:] == [(0, 0, Goodbye(0, 0))]  # not a second hello
    router.forget(0, 0)
    router.expect(0, 0, os.getppid(), heard)
    again.send(hello())
    await until_refused(caplog, "peer.refused")
    assert len(heard.messages) == 2


def test_names_say_slot_and_generation() -> None:
    assert worker_identity(3, 12) == b"3:12"


async def test_the_socket_is_gone_after_close(tmp_path: Path) -> None:
    router = Router(f"ipc://{tmp_path}/workers")
    assert (tmp_path / "workers").is_socket()
    router.close()
    router.close()
    assert not (tmp_path / "workers").exists()
    Router(router.endpoint).close()


async def test_a_message_that_cannot_be_encoded_does_not_spoil_the_next(
    router: Router, connect: Any
) -> None:
    router.expect(0, 0, os.getpid(), heard := Heard())
    dealer = connect(b"0:0")
    dealer.send(hello())
    await heard.until(1)
    with pytest.raises(OverflowError):
        router.send(0, 0, Pause(2**64))
    assert router.send(0, 0, Pause(7))
    await until(lambda: dealer.poll(0))
    assert dealer.recv_multipart() == [encode(Pause(7))]

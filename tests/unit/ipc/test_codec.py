"""Frames between agent and worker, and where their socket is."""

import typing
from pathlib import Path

import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.errors import ConfigurationError
from mitosis.ipc import messages as m
from mitosis.ipc.codec import ProtocolMismatch, decode_for_manager, decode_for_worker, encode
from mitosis.ipc.endpoints import MAX_SOCKET_PATH_BYTES, run_folder, worker_endpoint

TO_WORKER: list[m.ManagerToWorker] = [
    m.RunTasks(
        (
            m.RunTask(AttemptKey(2**62, 1), b'{"command":["true"]}'),
            m.RunTask(AttemptKey(2, 3), b"{}"),
        )
    ),
    m.TakeBack(),
    m.CancelTask(1, AttemptKey(2, 3), 0.5, "why"),
    m.Shutdown(1, graceful=True),
    m.Pause(1),
    m.Resume(2),
    m.Configure(3, output_tail_bytes=10),
    m.FollowOutput(4, AttemptKey(5, 6), on=True),
    m.OutputTaken(AttemptKey(1, 2), "stderr", 3, dropped=True),
]
FROM_WORKER: list[m.WorkerToManager] = [
    m.Hello(slot=0, generation=1, pid=2, cpus=(0, 3)),
    m.TaskStarted(AttemptKey(1, 1), 12.5),
    m.TaskNotStarted(AttemptKey(1, 1), "no process"),
    m.TakenBack((AttemptKey(1, 1), AttemptKey(2, 5))),
    m.TasksFinished((m.EncodedReport(AttemptKey(1, 1), 1.0, 2.0, b"{}"),)),
    m.TaskOutput(AttemptKey(1, 2), "stderr", 3, b"\xff\0"),
    m.Acknowledge(4),
    m.Goodbye(slot=0, generation=1),
]


def test_every_message_is_tried_here() -> None:
    assert {type(message) for message in TO_WORKER} == set(typing.get_args(m.ManagerToWorker))
    assert {type(message) for message in FROM_WORKER} == set(typing.get_args(m.WorkerToManager))


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda message: type(message).__name__)
def test_what_the_manager_says_arrives_as_said(message: m.ManagerToWorker) -> None:
    assert decode_for_worker(encode(message)) == message
    with pytest.raises(ProtocolMismatch):
        decode_for_manager(encode(message))


@pytest.mark.parametrize("message", FROM_WORKER, ids=lambda message: type(message).__name__)
def test_what_a_worker_says_arrives_as_said(message: m.WorkerToManager) -> None:
    assert decode_for_manager(encode(message)) == message
    with pytest.raises(ProtocolMismatch):
        decode_for_worker(encode(message))


def test_another_version_is_refused() -> None:
    frame = encode(m.Pause(1))
    other = bytes([frame[0] + 1]) + frame[1:]
    with pytest.raises(ProtocolMismatch, match="expected protocol version 3"):
        decode_for_worker(other)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x03",
        b"\x03\xff",
        b"\x03\x91\xa4Nope",
        b"\x03\x95\xaaCancelTask\x01\x92\x02\x03\xcb?\xe0\x00\x00\x00\x00\x00\x00\xa3w\xffy",
    ],
    ids=["empty", "version only", "no array", "unknown", "no UTF-8"],
)
def test_what_is_not_a_message_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolMismatch):
        decode_for_worker(frame)


@pytest.mark.spec("C-14", "S002-220", "S002-59")
def test_the_run_folder_is_named_by_the_manager_id_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run_folder("00000000-0000-0000-0000-000000000001", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run_folder("00000000-0000-0000-0000-000000000001", tmp_path) == first
    assert run_folder("00000000-0000-0000-0000-000000000002", tmp_path) != first
    assert worker_endpoint(first) == f"ipc://{first}/workers"


def test_a_socket_path_too_long_is_refused_with_what_to_do() -> None:
    folder = Path("/" + "x" * (MAX_SOCKET_PATH_BYTES - len("/workers") - 1))
    assert len(worker_endpoint(folder)) == len("ipc://") + MAX_SOCKET_PATH_BYTES
    with pytest.raises(ConfigurationError, match="MITOSIS_RUN_DIR"):
        worker_endpoint(folder.with_name(folder.name + "x"))

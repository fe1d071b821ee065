"""Encodes and decodes frames: one byte of protocol version, then the message as msgpack."""

from typing import TypeVar

import msgspec

from mitosis.contracts.errors import Conflict
from mitosis.ipc.messages import PROTOCOL_VERSION, ManagerToWorker, WorkerToManager

_M = TypeVar("_M")
_PREFIX = bytes([PROTOCOL_VERSION])
_encoder = msgspec.msgpack.Encoder()
_to_worker: msgspec.msgpack.Decoder[ManagerToWorker] = msgspec.msgpack.Decoder(ManagerToWorker)
_from_worker: msgspec.msgpack.Decoder[WorkerToManager] = msgspec.msgpack.Decoder(WorkerToManager)


class ProtocolMismatch(Conflict):
    """Agent and worker speak different versions of the protocol, or a frame holds no message."""

    code = "protocol_mismatch"


def encode(message: ManagerToWorker | WorkerToManager) -> bytes:
    """Encode a message as one frame."""
    return _PREFIX + _encoder.encode(message)


def decode_for_worker(frame: bytes) -> ManagerToWorker:
    """Decode a message of the manager.

    Raises:
        ProtocolMismatch: another version, or not a message of this direction.
    """
    return _decode(_to_worker, frame)


def decode_for_manager(frame: bytes) -> WorkerToManager:
    """Decode a message of a worker.

    Raises:
        ProtocolMismatch: another version, or not a message of this direction.
    """
    return _decode(_from_worker, frame)


def _decode(decoder: msgspec.msgpack.Decoder[_M], frame: bytes) -> _M:
    if frame[:1] != _PREFIX:
        raise ProtocolMismatch(f"expected protocol version {PROTOCOL_VERSION}")
    try:
        return decoder.decode(memoryview(frame)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolMismatch(f"not a message of this direction: {error}") from None

"""Run a program of a prepared server: ``python -I -S prepared_call.py SOCKET MODULE WORD…``.

It has the standard streams, environment, folder and signals of this process, which ends as the program
does. It imports only what is compiled into the interpreter or beside it: it takes the place of programs that
import much.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import marshal
import os
import sys

PASSED_ON = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT)


def main(path: str, module: str, *words: str) -> None:
    link = _socket.socket(_socket.AF_UNIX)
    link.connect(path)
    request = {"module": module, "words": [*words], "env": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109
    body = marshal.dumps(request)
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)
    link.sendmsg([len(body).to_bytes(4, "big")], [rights])
    link.sendall(body)
    for number in PASSED_ON:
        _signal.signal(number, lambda number, _: link.sendall(bytes([number])))
    for descriptor in (0, 1):  # whoever reads or writes there waits for the program alone
        os.close(descriptor)
    said = b""
    while len(said) < 8 and (more := link.recv(8 - len(said))):
        said += more
    if len(said) < 8:
        sys.exit("the prepared server has ended")
    if (status := int.from_bytes(said[4:], "big", signed=True)) < 0:
        if -status != _signal.SIGKILL:
            _signal.signal(-status, _signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])

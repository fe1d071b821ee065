"""Run a program of a prepared server: ``python -I -S prepared_call.py SOCKET MODULE WORD…``.

It has the standard streams, environment, folder and signals of this process, which ends as the program
does. It imports little: it takes the place of programs that import much.
"""

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main(path: str, module: str, *words: str) -> None:
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    request = {"module": module, "words": words, "env": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109
    body = json.dumps(request).encode()
    socket.send_fds(link, [len(body).to_bytes(4, "big")], [0, 1, 2])
    link.sendall(body)
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: link.sendall(bytes([number])))
    for descriptor in (0, 1):  # whoever reads or writes there waits for the program alone
        os.close(descriptor)
    said = b""
    while len(said) < 8 and (more := link.recv(8 - len(said))):
        said += more
    if len(said) < 8:
        sys.exit("the prepared server has ended")
    if (status := int.from_bytes(said[4:], "big", signed=True)) < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])

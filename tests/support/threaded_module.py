"""A module that must not be forked: importing it starts a thread."""

import threading
import time

_thread = threading.Thread(target=time.sleep, args=(3600,), daemon=True)
_thread.start()


def thread_is_alive() -> bool:
    return _thread.is_alive()

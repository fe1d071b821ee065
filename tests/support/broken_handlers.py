"""A module of handlers whose import starts a thread and then fails."""

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
raise ImportError("a library of this module is missing")

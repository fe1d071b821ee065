"""Where the application packages live, and how our own processes find them.

``workflows``, ``activities``, ``manager_agent``, ``api`` and ``migrations`` are plain top-level
packages in a checkout, but an installed wheel carries them inside ``mitosis/_app`` so that they
never collide with other distributions that use the same names. Only processes started through the
``mitosis`` command call :func:`enter_app`; a worker process that runs a user's handlers never does,
so a user's own ``workflows`` package stays theirs.
"""

import sys
from pathlib import Path


def app_root() -> Path:
    """Return the folder with the application packages: ``mitosis/_app`` in a wheel, else the checkout."""
    package = Path(__file__).resolve().parent
    shipped = package / "_app"
    return shipped if shipped.is_dir() else package.parent


def enter_app() -> None:
    """Put the application packages first on ``sys.path`` of this process. Idempotent."""
    root = str(app_root())
    if sys.path[:1] != [root]:
        sys.path.insert(0, root)

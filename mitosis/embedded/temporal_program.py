"""Finds the program ``temporal``; the module of the server imports the SDK, which takes half a second."""

import os
import shutil
import sys
from pathlib import Path

from mitosis.embedded.errors import ProgramMissing


def find_temporal_binary() -> Path:
    """Return the ``temporal`` program: ``$MITOSIS_TEMPORAL_BIN``, beside this interpreter, or on PATH.

    Raises:
        ProgramMissing: there is none.
    """
    beside = str(Path(sys.executable).parent / "temporal")
    chosen = os.environ.get("MITOSIS_TEMPORAL_BIN")
    for candidate in (chosen,) if chosen else (beside, shutil.which("temporal")):
        if candidate and os.access(candidate, os.X_OK):
            return Path(candidate)
    raise ProgramMissing(
        f"no temporal program at {chosen or f'{beside} or on PATH'}: install temporal-bin, or set "
        "MITOSIS_TEMPORAL_ADDRESS to a running server"
    )

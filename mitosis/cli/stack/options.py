"""Options of the commands that run servers."""

from pathlib import Path
from typing import Annotated

import typer

DataDirOption = Annotated[
    Path | None, typer.Option("--data-dir", metavar="FOLDER", help="Data folder of the stack.")
]

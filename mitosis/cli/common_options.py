"""The options that every command has: which API to use, and the form of the output."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer


def setting_overrides(
    api_url: str | None, token_file: Path | None, data_dir: Path | None
) -> dict[str, Any]:
    """Return the settings that these options override, by setting key; None overrides nothing."""
    return {"api.url": api_url, "api.token_file": token_file, "data_dir": data_dir}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """The common options of one command line."""

    api_url: Annotated[
        str | None,
        typer.Option("--api", metavar="URL", help="API to use [env: MITOSIS_API_URL]."),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with the token [env: MITOSIS_TOKEN_FILE, or MITOSIS_TOKEN for the token itself].",
        ),
    ] = None
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="FOLDER",
            help="Data folder of the stack to use [env: MITOSIS_DATA_DIR].",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, including errors.")] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only ids, names or numbers of tasks.")
    ] = False

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings that these options override."""
        return setting_overrides(self.api_url, self.token_file, self.data_dir)

    @property
    def api_option(self) -> str | None:
        """The option that selects the API, as typed; None if the command line has none."""
        given = {
            "--api": self.api_url,
            "--token-file": self.token_file,
            "--data-dir": self.data_dir,
        }
        return next((option for option, value in given.items() if value is not None), None)

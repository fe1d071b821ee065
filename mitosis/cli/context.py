"""The context of a running command: settings, output and the API."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import typer

from mitosis.cli.common_options import CommonOptions
from mitosis.cli.rendering import Output, choose_output
from mitosis.contracts.errors import ApiUnavailable, Unauthenticated

if TYPE_CHECKING:  # slow to import: only the commands that need them do, so that --help is fast
    from mitosis.cli.connection import Target
    from mitosis.client.sync import SyncClient
    from mitosis.settings import Loaded, Settings

T = TypeVar("T")

SCREENFUL = 50
GIVE_UP_AFTER = timedelta(seconds=2)
"""How long a command retries a call before it reports that nothing answers."""


class Cli:
    """The context of one command line: settings, output, and the API when the command uses it."""

    def __init__(self, options: CommonOptions) -> None:
        self._options = options
        self.as_json = options.as_json
        self.output: Output = choose_output(as_json=options.as_json, quiet=options.quiet)

    @cached_property
    def loaded(self) -> "Loaded":
        """The settings; the command line overrides the others.

        Raises:
            SettingsError: a setting is unknown or invalid.
        """
        from mitosis.settings import load_settings

        return load_settings(self._options.overrides)

    @property
    def settings(self) -> "Settings":
        return self.loaded.settings

    def take(self, items: Iterator[T], limit: int | None) -> list[T]:
        """Return the first ``limit`` items; None means all, or a screenful for a table."""
        if limit is None:
            limit = 0 if self.as_json or self._options.quiet else SCREENFUL
        if limit == 0:
            return list(items)
        found = list(islice(items, limit + 1))
        if len(found) > limit:
            self.hint(f"only the first {limit} are shown; use --limit N, or --limit 0 for all")
        return found[:limit]

    def hint(self, text: str) -> None:
        """Print a remark on standard error, unless the output is JSON."""
        if not self.as_json:
            typer.echo(text, err=True)

    @property
    def api_option(self) -> str | None:
        """The option that selects the API, as typed; None if the command line has none."""
        return self._options.api_option

    @cached_property
    def target(self) -> "Target":
        """The API that the settings or the running stack name.

        Raises:
            ApiUnavailable: there is none; the hint names the command to run.
        """
        from mitosis.cli.connection import find_api

        return find_api(self.settings)

    @contextmanager
    def client(self) -> Iterator["SyncClient"]:
        """Open a client of the API, as the user of the token.

        Raises:
            ApiUnavailable: nothing runs, or nothing answers at the address; with a hint.
            Unauthenticated: with a hint how to log in.
        """
        from mitosis.cli.connection import START
        from mitosis.client.sync import SyncClient

        target = self.target
        try:
            with SyncClient(
                target.address, target.token, give_up_after=GIVE_UP_AFTER, ca_file=target.ca_file
            ) as client:
                yield client
        except ApiUnavailable as error:
            error.facts.setdefault("hint", f"the address is from {target.origin}; {START}")
            raise
        except Unauthenticated as error:
            error.facts.setdefault("hint", "log in with: mitosis login USERNAME")
            raise

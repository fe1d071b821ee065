"""`mitosis ui`: a link to Temporal's Web UI."""

from mitosis.cli.context import Cli
from mitosis.cli.registration import typer_function
from mitosis.cli.rendering import Item


@typer_function
def ui(cli: Cli) -> None:
    """Get a link to the Temporal Web UI, which opens once.

    It is for administrators, opens within a minute in a browser on this host, and lasts 12 hours. With a
    Temporal server of your own it is the address in the settings.
    """
    url = cli.settings.temporal.ui_url
    if url is None:
        with cli.client() as client:
            url = cli.target.http_url.rstrip("/") + client.temporal_ui_path()
    cli.output.item(Item({"url": url}, [("open", url)], url))

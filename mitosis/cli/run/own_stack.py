"""The stack of `mitosis run --up`, in a temporary folder that is removed at the end of the run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mitosis.cli.stack.temporary_folder import data_folder, temporary_folder
from mitosis.cli.stack.whole_stack import WholeStack, whole_stack
from mitosis.embedded.stop_signals import StopSignals
from mitosis.settings import Settings

PREFIX = "mitosis-run-"


@asynccontextmanager
async def own_stack() -> AsyncIterator[tuple[WholeStack, StopSignals]]:
    """Run a stack while the context is open; yield it with the receiver of its signals.

    Raises:
        MitosisError: it cannot be started.
        KeyboardInterrupt: a signal arrived that the run had not taken over.
    """
    with StopSignals() as signals, temporary_folder(PREFIX) as folder:
        settings = Settings(data_dir=data_folder(folder))
        async with whole_stack(settings, signals=signals) as stack:
            yield stack, signals

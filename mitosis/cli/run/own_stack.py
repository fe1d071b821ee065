"""The stack that `mitosis run --up` starts for itself: a temporary folder, gone with the run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mitosis.cli.stack.temporary_folder import data_folder, temporary_folder
from mitosis.cli.stack.whole_stack import WholeStack, whole_stack
from mitosis.embedded.stop_signals import StopSignals
from mitosis.settings import Settings

PREFIX = "mitosis-run-"


@asynccontextmanager
async def own_stack() -> AsyncIterator[tuple[WholeStack, StopSignals]]:
    """A stack while the context is open, and who hears the signals until all of it is gone.

    Raises:
        MitosisError: it cannot be started.
        KeyboardInterrupt: a signal came that nobody had taken over.
    """
    with StopSignals() as signals, temporary_folder(PREFIX) as folder:
        settings = Settings(data_dir=data_folder(folder))
        async with whole_stack(settings, signals=signals) as stack:
            yield stack, signals

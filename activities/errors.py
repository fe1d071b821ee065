"""Mitosis errors as Temporal application errors: ``type`` is the stable code."""

from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.exceptions import ApplicationError

from mitosis.contracts.errors import MitosisError


@contextmanager
def as_application_errors() -> Iterator[None]:
    """Turn a MitosisError into an ApplicationError that is retried only if retrying can help.

    Raises:
        ApplicationError: ``type`` = the error's code, details = its facts.
    """
    try:
        yield
    except MitosisError as error:
        raise ApplicationError(
            error.message, error.facts, type=error.code, non_retryable=not error.retryable
        ) from error

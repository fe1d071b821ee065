"""Mitosis errors as Temporal application errors: ``type`` is the stable code."""

from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from mitosis.contracts.errors import MitosisError

INTERNAL = 500


@contextmanager
def as_application_errors() -> Iterator[None]:
    """Turn a MitosisError into an ApplicationError that is retried only if retrying can help.

    Raises:
        ApplicationError: ``type`` = the error's code, details = its facts.
    """
    try:
        yield
    except MitosisError as error:
        refused = error.http_status < INTERNAL
        raise ApplicationError(
            error.message,
            error.facts,
            type=error.code,
            non_retryable=not error.retryable,
            # A refusal is an answer: no warning, no traceback in the log.
            category=ApplicationErrorCategory.BENIGN
            if refused
            else ApplicationErrorCategory.UNSPECIFIED,
        ) from error

"""Logging of the programs: one format for our records and those of libraries.

Called once by an entry point. Library code uses only :mod:`logging`; the worker process, whose
output belongs to tasks, never imports this module.
"""

import logging
import re
import sys
from typing import Literal, TextIO

import structlog

LogFormat = Literal["auto", "console", "json"]

_QUIET = {
    "httpx2": logging.WARNING,
    "psycopg.pool": logging.WARNING,
    "uvicorn.error": logging.WARNING,  # below, it logs whole addresses of WebSockets
}
_DOT = r"(?:\.|%2[Ee])"
_TOKEN = re.compile(rf"eyJ[\w%-]{{4,}}{_DOT}[\w%-]+(?:{_DOT}[\w%-]*)?")
"""A JWT, also with percent-encoded dots; three characters of its header are always these."""


def configure_logging(
    level: str = "INFO", log_format: LogFormat = "auto", stream: TextIO | None = None
) -> None:
    """Send every log record to ``stream`` (standard error), ``extra`` facts included. Idempotent.

    ``auto`` is for people on a terminal and one JSON object per line elsewhere.
    """
    out = stream or sys.stderr
    console = log_format == "console" or (log_format == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(),
                structlog.processors.TimeStamper(fmt="iso", utc=True),
            ],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *(_console(out) if console else _json()),
                _without_tokens,
            ],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)


def _console(out: TextIO) -> list[structlog.typing.Processor]:
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain)]


def _without_tokens(
    _logger: structlog.typing.WrappedLogger,
    _method: str,
    line: structlog.typing.ProcessorReturnValue,
) -> str:
    """Replace every token in the formatted line: those of a library's message or a traceback, too."""
    return _TOKEN.sub("[token]", str(line))


def _json() -> list[structlog.typing.Processor]:
    """Format tracebacks as data, without local variables, which may hold secrets."""
    traceback = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [
        structlog.processors.ExceptionRenderer(traceback),
        structlog.processors.JSONRenderer(default=str),
    ]

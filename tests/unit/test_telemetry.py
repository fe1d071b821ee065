import io
import json
import logging
import sys

import pytest

from mitosis.telemetry import LogFormat, configure_logging


def test_json_lines_carry_event_and_facts_of_any_library() -> None:
    out = io.StringIO()
    configure_logging(log_format="auto", stream=out)
    logging.getLogger("some.library").warning("group.closed", extra={"task_group_id": "g1"})
    line = json.loads(out.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "group.closed",
        "level": "warning",
        "logger": "some.library",
        "task_group_id": "g1",
    }


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_an_exception_is_logged_without_local_values(log_format: LogFormat) -> None:
    out = io.StringIO()
    configure_logging(log_format=log_format, stream=out)
    _fail_with_a_secret("geheim")
    assert "part.failed" in out.getvalue()
    assert "went wrong" in out.getvalue()
    assert "geheim" not in out.getvalue()
    if log_format == "json":
        assert out.getvalue().count("\n") == 1


def _fail_with_a_secret(password: str) -> None:
    try:
        raise ValueError("went wrong" + password[:0])
    except ValueError:
        logging.getLogger("x").exception("part.failed")


def test_console_lines_are_for_people_and_the_level_holds() -> None:
    out = io.StringIO()
    configure_logging(level="WARNING", log_format="console", stream=out)
    logging.getLogger("x").info("not.shown")
    logging.getLogger("x").error("part.failed", extra={"part": "postgres"})
    assert "not.shown" not in out.getvalue()
    assert "part.failed" in out.getvalue()
    assert "part=postgres" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_configuring_twice_logs_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging(log_format="json", stream=first)
    configure_logging(log_format="json", stream=second)
    logging.getLogger("x").info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("\n") == 1


def test_the_default_stream_is_standard_error() -> None:
    configure_logging()
    [handler] = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    assert handler.stream is sys.stderr


TOKEN = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ1c2VyIn0.c2lnbmF0dXJl-_x"


@pytest.mark.parametrize("token", [TOKEN, TOKEN.replace(".", "%2E"), TOKEN.rpartition(".")[0]])
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_token_is_logged_wherever_it_stands(log_format: LogFormat, token: str) -> None:
    out = io.StringIO()
    configure_logging(log_format=log_format, stream=out)
    logger = logging.getLogger("some.library")
    logger.info("GET /events?token=%s", token)
    logger.info("fact", extra={"facts": {"address": f"/?a={token}&b=1"}})
    try:
        raise ValueError(f"Bearer {token}")
    except ValueError:
        logger.exception("failed")
    assert [part for part in token.replace("%2E", ".").split(".") if part in out.getvalue()] == []
    assert out.getvalue().count("[token]") >= 3


def test_the_server_does_not_log_addresses() -> None:
    out = io.StringIO()
    configure_logging(level="DEBUG", log_format="json", stream=out)
    logging.getLogger("uvicorn.error").info('"WebSocket /events?password=x" [accepted]')
    assert out.getvalue() == ""

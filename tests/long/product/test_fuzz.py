"""A chunk of `make fuzz`, as small as it gets: each route twice."""

import pytest

from tests.fuzz.campaign import run_chunk
from tests.fuzz.servers import Servers
from tests.support.databases import DatabasePool
from tests.support.servers import LoopThread


# Hypothesis takes random numbers that the servers draw in their thread for some of a strategy.
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")
def test_no_call_is_answered_by_a_server_error_or_by_what_is_not_documented(
    databases: DatabasePool, server_loop: LoopThread
) -> None:
    report = run_chunk(Servers(server_loop, databases, "nowhere"), number=1, each=2)
    assert report.calls > 200
    assert report.wrong == {}

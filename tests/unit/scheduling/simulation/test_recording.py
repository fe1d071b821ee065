"""Workloads as lines of JSON: what is written is read again, and nonsense is refused by its line."""

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.scheduling.simulation.recording import read_workload, workload_lines
from mitosis.scheduling.simulation.synthetic import Mix, mixed

HEAD = b'{"kind": "workload", "until": 3600}'
HOST = b'{"kind": "host", "name": "h1", "user_groups": ["team"]}'
GROUP = b'{"kind": "group", "name": "g", "user_group": "team", "at": 0}'


def test_a_workload_survives_its_file() -> None:
    made = mixed(Mix(hosts=10, days=1, load=1, seed=1))
    assert made.groups
    assert made.away
    assert made.drains
    assert read_workload(workload_lines(made)) == made


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "exactly one line .*this one has 0"),
        ([HEAD, HEAD], "this one has 2"),
        ([HEAD, b"{"], "line 2: Input data was truncated"),
        ([HEAD, b"", b'{"kind": "hosts"}'], "line 3: Invalid value 'hosts'"),
        ([HEAD, HOST.replace(b"name", b"nam")], "line 2: Object contains unknown field `nam`"),
        (
            [HEAD, HOST.replace(b"]}", b'], "factor": 0}')],
            r"line 2: Expected `float` > 0.0 - at `\$.factor`",
        ),
        ([HEAD, GROUP.replace(b"0}", b"-1}")], r"line 2: Expected `float` >= 0.0 - at `\$.at`"),
        ([HEAD, HOST, HOST], "host h1 is there twice"),
        ([HEAD, GROUP, GROUP], "task group g is there twice"),
        (
            [HEAD, GROUP.replace(b"0}", b'0, "hosts": ["h9"]}')],
            "task group g: there is no host 'h9'",
        ),
        ([HEAD, b'{"kind": "tasks", "group": "x", "at": 0}'], "tasks: there is no task group 'x'"),
        ([HEAD, GROUP, b'{"kind": "tasks", "group": "g", "at": 0}'], "either seconds or count"),
        (
            [HEAD, HOST, b'{"kind": "away", "host": "h1", "at": 9, "until": 8}'],
            "h1: until must be at least at, 9, not 8",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(lines: list[bytes], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read_workload(lines)

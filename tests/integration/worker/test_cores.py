"""Cores in force: what confines a task, and what its result says when nothing did."""

import os
import sys
from pathlib import Path

import pytest

from mitosis.worker import cpuset
from tests.support.checkout import ROOT
from tests.support.worker_host import worker_host

ALL = tuple(sorted(os.sched_getaffinity(0)))
WIDEN = f"import os; os.sched_setaffinity(0, {set(ALL)}); print(*sorted(os.sched_getaffinity(0)))"
COMMAND = [sys.executable, "-c", WIDEN]
HANDLER = "tests.support.sample_handlers:widen"

pytestmark = pytest.mark.skipif(len(ALL) < 2, reason="one core cannot be left")


def test_a_task_that_widens_its_mask_is_found_out(tmp_path: Path) -> None:
    with worker_host(tmp_path, python_path=(str(ROOT),)) as host:
        host.spawn(cpus=ALL[:1])
        for spec in ({"command": COMMAND}, {"handler": HANDLER, "arguments": [list(ALL)]}):
            _, detail = host.run(**spec)
            assert (detail["cpus"], detail["cpus_at_end"]) == ([ALL[0]], list(ALL))
        _, detail = host.run(command=["true"])
        assert "cpus_at_end" not in detail


@pytest.mark.spec("S002-245")
@pytest.mark.skipif(cpuset.refusal() is not None, reason="no cpuset cgroup can be made here")
def test_a_cpuset_cannot_be_left(tmp_path: Path) -> None:
    prefix = f"mitosis-test-{os.getpid()}-"
    try:
        with worker_host(tmp_path, python_path=(str(ROOT),), cpusets=prefix) as host:
            host.spawn(cpus=ALL[:1])
            for spec in ({"command": COMMAND}, {"handler": HANDLER, "arguments": [list(ALL)]}):
                report, detail = host.run(**spec)
                assert (report.outcome, detail["cpus"]) == ("succeeded", [ALL[0]])
                assert "cpus_at_end" not in detail
            assert host.run(command=COMMAND)[1]["stdout"] == f"{ALL[0]}\n"
    finally:
        cpuset.remove(prefix)
    assert not list(cpuset.parent_cgroup().glob(f"{prefix}*"))
    assert os.sched_getaffinity(0) == set(ALL)

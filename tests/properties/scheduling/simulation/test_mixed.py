"""A mixed workload of one day in a small form: no host is kept from work, at a bounded price."""

from functools import cache

import pytest

from mitosis.scheduling.decide import decide
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.simulation.comparison import PolicyName, policies
from mitosis.scheduling.simulation.result import Result, Wait, result_of
from mitosis.scheduling.simulation.simulator import Simulator, decide_in_turn
from mitosis.scheduling.simulation.synthetic import Mix, mixed

MIX = Mix(hosts=20, days=1, load=1.2, seed=7)


@cache
def simulated(name: PolicyName) -> tuple[Simulator, Result]:
    workload = mixed(MIX)
    simulator = Simulator(workload, policies(Policy())[name], checked=name is PolicyName.RULES)
    return simulator, result_of(workload, simulator.run())


def result(name: PolicyName) -> Result:
    return simulated(name)[1]


def wait(name: PolicyName, priority: int) -> Wait:
    return next(wait for wait in result(name).waits if wait.priority == priority)


@pytest.mark.spec("S002-174")
def test_after_no_round_is_a_host_kept_from_work() -> None:
    simulator, found = simulated(PolicyName.RULES)
    assert simulator.kept == []
    assert simulator.accounts.rounds > 500
    assert found.past_threshold_percent < 0.1, "only between two rounds"


@pytest.mark.spec("S002-174", "S002-274")
def test_hosts_stay_with_task_groups() -> None:
    found = result(PolicyName.RULES)
    assert found.setups_per_host_day < result(PolicyName.FIFO).setups_per_host_day
    assert found.switch_percent < 6
    assert found.drain_percent < 7


@pytest.mark.spec("S002-174")
def test_what_goes_first_waits_little_and_the_rest_not_for_ever() -> None:
    assert wait(PolicyName.RULES, 10).p95_minutes < wait(PolicyName.FIFO, 10).p95_minutes
    assert wait(PolicyName.RULES, 0).p50_minutes < wait(PolicyName.NO_FAIR_SHARE, 0).p50_minutes
    assert result(PolicyName.RULES).longest_hostless_hours < 25


@pytest.mark.spec("S002-174")
def test_user_groups_that_wait_have_equal_shares_more_often() -> None:
    assert result(PolicyName.RULES).jain > result(PolicyName.NO_FAIR_SHARE).jain


def test_the_same_workload_comes_to_the_same() -> None:
    small = Mix(hosts=8, days=0.5, load=1.0, seed=5)
    results = []
    for decision in (decide_in_turn, decide_in_turn, decide):
        workload = mixed(small)
        accounts = Simulator(workload, Policy(), decision=decision).run()
        found = dict(result_of(workload, accounts).figures())
        del found["decide_ms"], found["longest_decide_ms"]
        results.append(found)
    assert results[0] == results[1]
    assert results[0] == results[2], "the next time matters only to the last decision of a round"

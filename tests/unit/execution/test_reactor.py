"""The reactor of a lease session: each event's whole list of instructions."""

from collections.abc import Iterable

import msgspec
import pytest

from mitosis.contracts.attempt import AttemptKey
from mitosis.contracts.outcome import ExitKind, ExitReason
from mitosis.contracts.wire import ClaimedTask, LeaseStanding
from mitosis.execution.events import (
    Begin,
    Claim,
    Claimed,
    Event,
    Instruction,
    Kill,
    Looked,
    Report,
    Reported,
    RespawnDue,
    Send,
    Spawn,
    SpawnLater,
    Stop,
    TaskBegan,
    TasksEnded,
    TasksTakenBack,
    WorkerExited,
    WorkerHangs,
    WorkerReady,
)
from mitosis.execution.reactor import step
from mitosis.execution.state import HORIZON_LOOKS, State, Task
from mitosis.ipc.messages import EncodedReport
from tests.support.agent_invariants import check_invariants
from tests.support.reports import decoded

ACTIVE = LeaseStanding.ACTIVE
SEGFAULT = ExitReason(ExitKind.SIGNAL, 11)
KILLED = ExitReason(ExitKind.SIGNAL, 9)


class Session:
    """Feeds events and checks what always holds after each."""

    def __init__(
        self, workers: int = 1, prefetch: int | None = None, *, fence: bool = False
    ) -> None:
        self.state = State(worker_count=workers, prefetch=prefetch, fence_kills=fence)

    def __call__(self, event: Event) -> list[Instruction]:
        out = step(self.state, event)
        check_invariants(self.state)
        return out

    def begin(self) -> list[Instruction]:
        self(Begin())
        out: list[Instruction] = []
        for slot in range(len(self.state.workers)):
            out += self(WorkerReady(slot, 0))
        return out

    def claimed(self, *task_ids: int, alone: bool = False, more: bool = True) -> list[Instruction]:
        """Answer the claim in flight; ``more``: there was as much as it asked for."""
        if task_ids and more:
            self.state.asked = len(task_ids)
        tasks = tuple(
            ClaimedTask(task_id=n, attempt=1, spec=msgspec.Raw(b"{}"), alone=alone)
            for n in task_ids
        )
        return self(Claimed(self.state.claim_seq, ACTIVE, tasks))

    def began(self, task_id: int, slot: int = 0, generation: int = 0) -> list[Instruction]:
        return self(TaskBegan(slot, generation, AttemptKey(task_id, 1), 100.0))

    def ended(self, *task_ids: int, slot: int = 0, seconds: float = 1.0) -> list[Instruction]:
        return self(TasksEnded(slot, 0, tuple(report(n, seconds) for n in task_ids)))

    def died(
        self,
        slot: int = 0,
        generation: int = 0,
        reason: ExitReason = SEGFAULT,
        *,
        oom: bool = False,
        begun: Iterable[int] = (),
        running: int | None = None,
    ) -> list[Instruction]:
        known = frozenset(AttemptKey(n, 1) for n in begun)
        last = None if running is None else AttemptKey(running, 1)
        return self(WorkerExited(slot, generation, reason, oom, 101.0, running=last, begun=known))

    def reported(self, *task_ids: int, standing: LeaseStanding = ACTIVE) -> list[Instruction]:
        return self(Reported(tuple(AttemptKey(n, 1) for n in task_ids), standing))


def report(task_id: int, seconds: float = 1.0) -> EncodedReport:
    return EncodedReport(AttemptKey(task_id, 1), 100.0, 100.0 + seconds, b"{}")


def task(task_id: int, *, alone: bool = False) -> Task:
    return Task(AttemptKey(task_id, 1), b"{}", alone)


def send(slot: int, *task_ids: int) -> Send:
    return Send(slot, 0, tuple(task(n) for n in task_ids))


def sent(instructions: list[Instruction]) -> list[int]:
    return [t.key.task_id for i in instructions if isinstance(i, Send) for t in i.tasks]


def keys(*task_ids: int) -> list[AttemptKey]:
    return [AttemptKey(task_id, 1) for task_id in task_ids]


def test_workers_are_spawned_and_the_first_that_is_ready_starts_the_claims() -> None:
    session = Session(workers=2)
    assert session(Begin()) == [Spawn(0, 0), Spawn(1, 0)]
    assert session(WorkerReady(1, 0)) == [Claim(1, 0, 2, max_late=1)]
    assert session(WorkerReady(0, 0)) == []  # one claim at a time


@pytest.mark.spec("S000-33")
def test_claimed_tasks_are_spread_and_the_next_claim_follows() -> None:
    session = Session(workers=2)
    session.begin()
    assert session.claimed(10, 11) == [send(0, 10), send(1, 11), Claim(2, 1, 2)]
    assert session.claimed(12, 13) == []
    assert session.began(10) == []
    assert session.ended(10, seconds=0.5) == [Report((report(10, 0.5),)), send(0, 12)]
    session.began(11, slot=1)
    assert session.ended(11, slot=1, seconds=0.5) == [
        Report((report(11, 0.5),)),
        send(1, 13),
        Claim(3, 2, 1),
    ]


def test_a_lone_report_is_urgent_and_an_empty_answer_raises_acked_seq() -> None:
    session = Session()
    session.begin()
    assert session.claimed(10) == [send(0, 10), Claim(2, 1, 1)]
    assert session.claimed() == []  # it is busy, so another host may have the next
    assert session.state.acked_seq == 2
    session.began(10)
    assert session.ended(10) == [Report((report(10),), urgent=True), Claim(3, 2, 1, max_late=1)]
    assert session.reported(10) == []
    assert session.state.held == set()


def test_rows_that_are_returned_again_are_not_taken_twice() -> None:
    session = Session(prefetch=5)
    session.begin()
    session.claimed(10, 11)
    assert session.claimed(10, 11, 12) == [Claim(3, 2, 3)]
    assert [t.key.task_id for t in session.state.ready] == [11, 12]


def test_an_answer_to_another_claim_is_ignored() -> None:
    session = Session()
    session.begin()
    assert session(Claimed(9, ACTIVE, ())) == []
    assert session.state.acked_seq == 0


@pytest.mark.parametrize(
    ("seconds", "credit"), [(0.5, 1), (0.010, 1), (0.009, 2), (0.002, 10), (0.0001, 64)]
)
def test_credit_follows_the_duration_of_tasks(seconds: float, credit: int) -> None:
    session = Session(prefetch=80)
    session.begin()
    session.claimed(*range(10, 90))
    session.began(10)
    session.ended(10, seconds=seconds)
    assert session.state.credit == credit
    assert session.state.workers[0].load == credit


@pytest.mark.parametrize(("seconds", "wanted"), [(10.0, 0), (0.7, 1), (0.1, 5), (0.001, 256)])
def test_what_is_held_beyond_the_workers_is_a_quarter_second_of_work(
    seconds: float, wanted: int
) -> None:
    session = Session(workers=2)
    session.begin()
    session.state.mean_seconds = seconds
    session.state.asked = 0  # its answer is not short
    (claim,) = session.claimed()
    assert isinstance(claim, Claim)
    assert claim.max_tasks == min(256, 2 * session.state.credit + wanted)


@pytest.mark.spec("S000-06")
def test_the_prefetch_count_of_the_plan_is_honoured() -> None:
    session = Session(workers=2, prefetch=7)
    session(Begin())
    assert session(WorkerReady(0, 0)) == [Claim(1, 0, 8, max_late=1)]
    none = Session(workers=2, prefetch=0)
    none(Begin())
    assert none(WorkerReady(0, 0)) == [Claim(1, 0, 1, max_late=1)]


@pytest.mark.spec("S000-31")
def test_what_waits_is_handed_out_in_order_and_is_never_more_than_the_prefetch_count() -> None:
    session = Session(prefetch=3)
    session.begin()
    assert session.claimed(10, 11, 12, 13) == [send(0, 10)]
    for ended, following in ((10, 11), (11, 12), (12, 13)):
        assert len(session.state.ready) <= 3
        session.began(ended)
        asked = session.ended(ended)
        assert send(0, following) in asked
        for claim in asked:
            if isinstance(claim, Claim):
                assert len(session.state.ready) + claim.max_tasks <= 3
    assert not session.state.ready


def test_a_start_frees_the_credit_of_the_task_before() -> None:
    session = Session(prefetch=10)
    session.begin()
    session.state.mean_seconds = 0.009
    session.claimed(10, 11, 12, 13)
    assert [key.task_id for key in session.state.workers[0].unstarted] == [10, 11]
    assert session.began(10) == []
    assert session.began(11) == [send(0, 12)]  # 10 is over, although not reported
    assert list(session.state.workers[0].finishing) == [AttemptKey(10, 1)]


@pytest.mark.spec("S000-67", "S002-142", "S002-249", "S000-69")
@pytest.mark.parametrize("hung", [False, True])
def test_death_of_a_worker_charges_what_ran_and_nothing_else(hung: bool) -> None:
    """What had ended before runs again once, because its outcome is lost; then it is charged too."""
    session = Session(prefetch=10)
    session.begin()
    session.state.mean_seconds = 0.009
    session.claimed(10, 11, 12)
    for generation, charged in enumerate([{11}, {10}]):
        *first, last = [t.task_id for t in session.state.workers[0].unstarted]
        for task_id in (*first, last):
            session.began(task_id, generation=generation)
        if hung:
            session(WorkerHangs(0, generation, AttemptKey(last, 1), "too long"))
        out = session.died(generation=generation, reason=KILLED if hung else SEGFAULT)
        (said,) = [i for i in out if isinstance(i, Report)]
        reports = {r.task_id: r.kind for r in map(decoded, said.reports)}
        assert reports.keys() == charged
        assert reports.pop(last) == ("timeout" if hung else "worker_lost")
        assert set(reports.values()) <= {"worker_lost"}
        assert any(isinstance(i, Spawn | SpawnLater) for i in out)
        session(RespawnDue(0, generation + 1))
        session(WorkerReady(0, generation + 1))
    assert [t.task_id for t in session.state.workers[0].unstarted] == [12]


def test_starts_that_were_not_said_are_charged_as_exactly() -> None:
    """Shared memory says what a dead worker had begun. The tasks that it had not begun go on uncharged."""
    session = Session(prefetch=10)
    session.begin()
    session.state.mean_seconds = 0.004
    session.claimed(10, 11, 12, 13)
    for generation, charged in enumerate([{11}, {10}, {13}]):
        held = [task.task_id for task in session.state.workers[0].unstarted][:2]
        out = session.died(generation=generation, begun={9, *held}, running=held[-1])
        (said,) = [i for i in out if isinstance(i, Report)]
        assert {r.task_id for r in map(decoded, said.reports)} == charged
        session(RespawnDue(0, generation + 1))
        session(WorkerReady(0, generation + 1))
    assert [t.task_id for t in session.state.workers[0].unstarted] == [12]


def test_what_had_ended_in_a_dead_worker_runs_again_one_at_a_time() -> None:
    """Else another task that ends its worker charges those that only ended there before."""
    session = Session(prefetch=10)
    session.begin()
    session.state.mean_seconds = 0.004
    session.claimed(10, 11, 12, 13)
    out = session.died(begun={10, 11})  # nothing ran when it died
    assert not [i for i in out if isinstance(i, Report)]
    assert sent(session(WorkerReady(0, 1))) == [10]
    assert sent(session(TasksEnded(0, 1, (report(10, 0.004),)))) == [11]
    assert sent(session(TasksEnded(0, 1, (report(11, 0.004),)))) == [12, 13]


def test_a_mark_of_no_task_of_the_worker_hides_nothing_that_had_begun() -> None:
    """A task may write into that file, and a kill may tear what is being written."""
    session = Session(prefetch=10)
    session.begin()
    session.state.mean_seconds = 0.004
    session.claimed(10, 11, 12)
    session.died(begun={10, 11}, running=99)
    assert session.state.repeated == set(keys(10, 11))


def test_what_would_run_again_and_is_returned_holds_nothing_up() -> None:
    session = Session(prefetch=10)
    session.begin()
    session.state.mean_seconds = 0.004
    session.claimed(10, 11, 12)
    session.died(begun={10, 11})
    session(Stop())
    assert session.state.returned == set(keys(10, 11, 12))
    assert not session.state.repeated


def test_a_start_tells_that_those_sent_before_have_ended() -> None:
    """Their reports are on the way, so they are neither taken back nor ended as hanging."""
    session = Session(prefetch=10)
    session.begin()
    session.state.mean_seconds = 0.004
    session.claimed(10, 11, 12, 13)
    session.began(12)
    (worker,) = session.state.workers
    assert (list(worker.finishing), list(worker.unstarted)) == (keys(10, 11), keys(13))
    assert session(WorkerHangs(0, 0, AttemptKey(11, 1), "too long")) == []
    assert session(WorkerHangs(0, 0, AttemptKey(12, 1), "too long")) == [Kill(0, 0)]


def test_what_a_worker_gives_back_has_not_begun_even_if_its_mark_was_seen() -> None:
    session = Session(prefetch=10)
    session.begin()
    session.state.mean_seconds = 0.004
    session.claimed(10, 11)
    session.began(10)
    session(TasksTakenBack(0, 0, tuple(keys(10, 11))))
    (worker,) = session.state.workers
    assert worker.running is None
    assert list(worker.unstarted) == keys(10, 11), "sent again"


def test_tasks_whose_starts_are_not_said_count_as_progress() -> None:
    session = Session(prefetch=10)
    session.begin()
    session.state.mean_seconds = 0.004
    session.claimed(10, 11, 12, 13)
    for _ in range(HORIZON_LOOKS + 1):
        session(Looked(in_contact=True))
    assert session.state.stalled
    session.ended(10, 11, seconds=0.004)
    session(Looked(in_contact=True))
    assert not session.state.stalled


def test_a_cancelled_attempt_does_not_run_again_after_its_worker() -> None:
    session = Session(prefetch=10)
    session.begin()
    session.state.mean_seconds = 0.005
    session.claimed(10, 11)
    session.began(10)
    session.began(11)
    session.state.cancelled.add(AttemptKey(10, 1))
    (said,) = [i for i in session.died() if isinstance(i, Report)]
    assert [(r.task_id, r.kind) for r in map(decoded, said.reports)] == [
        (10, "cancelled"),
        (11, "worker_lost"),
    ]


@pytest.mark.spec("S000-61")
def test_death_for_lack_of_memory_is_told_apart() -> None:
    session = Session()
    session.begin()
    session.claimed(10)
    session.began(10)
    (said,) = [i for i in session.died(reason=KILLED, oom=True) if isinstance(i, Report)]
    assert decoded(said.reports[0]).kind == "out_of_memory"
    assert b"killed by SIGKILL (out of memory)" in said.reports[0].report


def test_a_task_whose_start_was_lost_with_its_worker_is_charged() -> None:
    session = Session()
    session.begin()
    session.claimed(10)
    (said, spawn) = session(WorkerExited(0, 0, SEGFAULT, False, 101.0, running=AttemptKey(10, 1)))
    assert isinstance(said, Report)
    assert (decoded(said.reports[0]).task_id, decoded(said.reports[0]).kind) == (10, "worker_lost")
    assert spawn == Spawn(0, 1)
    assert not session.state.ready


@pytest.mark.parametrize("stops", [True, False])
def test_a_zygote_that_a_stop_of_all_processes_ends_charges_nothing(*, stops: bool) -> None:
    """A service manager sends SIGTERM to the agent and its zygotes at once; the goodbye requeues what ran."""
    session = Session()
    session.begin()
    session.claimed(10)
    session.began(10)
    if stops:
        session(Stop())
    lost = ExitReason(ExitKind.UNKNOWN)
    said = session(WorkerExited(0, 0, lost, False, 101.0, zygote=ExitReason(ExitKind.EXIT_CODE, 0)))
    kinds = [decoded(i.reports[0]).kind for i in said if isinstance(i, Report)]
    assert kinds == ([] if stops else ["workers_lost"])


def test_a_worker_that_keeps_dying_uselessly_is_respawned_ever_later() -> None:
    session = Session()
    session(Begin())
    assert session.died(generation=0) == [Spawn(0, 1)]
    assert session.died(generation=1) == [SpawnLater(0, 2, 0.05)]
    assert session(RespawnDue(0, 1)) == []
    assert session(RespawnDue(0, 2)) == [Spawn(0, 2)]
    assert session.died(generation=2) == [SpawnLater(0, 3, 0.1)]
    out: list[Instruction] = []
    for generation in range(3, 30):
        session(RespawnDue(0, generation))
        out = session.died(generation=generation)
    assert out == [SpawnLater(0, 30, 5.0)]


def test_events_of_an_earlier_process_of_the_slot_change_nothing() -> None:
    session = Session()
    session.begin()
    session.claimed(10)
    session.began(10)
    session.died()
    session(WorkerReady(0, 1))
    assert session.ended(10) == []
    assert session.died(generation=0) == []
    assert session(TaskBegan(0, 0, AttemptKey(10, 1), 1.0)) == []


def test_a_hanging_worker_is_killed_and_its_task_timed_out() -> None:
    session = Session()
    session.begin()
    session.claimed(10)
    session.began(10)
    assert session(WorkerHangs(0, 0, AttemptKey(10, 1), "too long")) == [Kill(0, 0)]
    (said,) = [i for i in session.died(reason=KILLED) if isinstance(i, Report)]
    assert decoded(said.reports[0]).kind == "timeout"
    assert session(WorkerHangs(0, 1, AttemptKey(10, 1), "too long")) == []


def test_a_task_that_must_be_alone_waits_for_the_others_and_holds_them_up() -> None:
    session = Session(workers=2, prefetch=4)
    session.begin()
    session.claimed(10)
    session.began(10)
    assert session.claimed(20, alone=True) == []
    assert session.ended(10) == [
        Report((report(10),)),
        Send(0, 0, (task(20, alone=True),)),
    ]
    session.began(20)
    assert session.reported(10) == []
    out = session.ended(20)
    assert out[0] == Report((report(20),), urgent=True)
    assert isinstance(out[1], Claim)


def test_a_worker_holds_few_short_tasks_with_large_arguments() -> None:
    session = Session()
    session.begin()
    session.state.mean_seconds = 0.0001
    large = msgspec.Raw(b'"' + b"x" * 100_000 + b'"')
    tasks = tuple(ClaimedTask(task_id=n, attempt=1, spec=large) for n in range(1, 21))
    session.state.asked = len(tasks)
    told = session(Claimed(session.state.claim_seq, ACTIVE, tasks))
    assert sent(told) == [1, 2]
    assert sent(session.began(1)) == [3]

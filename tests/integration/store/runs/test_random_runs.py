"""Random jobs under random ends, retries, cancels, timeouts and crashes: the rules of protocol P15 hold.

Every task ends, none starts before the steps before its own allow it, the counters are those of the rows, and
the states of steps and run are a function of how tasks have ended and of what has stopped them.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mitosis.contracts.errors import InvalidTransition
from mitosis.contracts.lifecycle import RUN
from mitosis.contracts.runs import CancelRun, RerunRun, RunView, StepInfo
from mitosis.contracts.task_cancel import CancelTasks
from mitosis.contracts.wire import ClaimedTask
from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.reading import definition_of
from mitosis.store.dependencies.resolve import resolve_all
from mitosis.store.runs.starting import rerun
from mitosis.store.runs.stopping import cancel_run
from mitosis.store.runs.turns import advance_run
from mitosis.store.store import Store, StoreOptions
from mitosis.store.tasks.cancel import cancel_tasks
from mitosis.store.users.accounts import create_user
from tests.support.campaigns import World
from tests.support.examples import examples
from tests.support.runs import Runs, advance_due, command, job

MOST_STEPS = 6
OUTCOMES = ("success", "failure", "always")
MET: Mapping[str, Callable[[str], bool]] = {
    "success": lambda state: state == "succeeded",
    "failure": lambda state: state == "failed",
    "always": lambda state: True,
    "each": lambda state: state in {"succeeded", "failed"},
}
"""Whether a step may start after one that has come to a state."""
ACTIONS = (
    *("claim", "claim", "end", "end", "advance", "both", "resolve"),
    *("cancel task", "cancel", "skip cleanup", "timeout", "step timeout"),
)
ACTS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 9)), max_size=40)


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    steps: dict[str, Any] = {}
    for number in range(draw(st.integers(1, MOST_STEPS))):
        name, earlier = f"s{number}", sorted(steps)
        fields: dict[str, Any] = {"group": draw(st.sampled_from(("one", "two")))}
        after: set[str] = set()
        if earlier:
            after = draw(st.sets(st.sampled_from(earlier), max_size=3))
        fields["after"] = {one: draw(st.sampled_from(OUTCOMES)) for one in sorted(after)}
        arrays = [one for one in sorted(after) if "count" in steps[one]]
        follows = draw(st.booleans())
        if arrays and follows:
            fields["after"][arrays[0]] = "each"
        else:
            fields["count"] = draw(st.integers(0, 3))
        if draw(st.integers(0, 3)) == 0:
            fields["max_failures"] = draw(st.sampled_from([0, 1, "50%"]))
        fields["retry"] = {"max_attempts": draw(st.sampled_from([1, 1, 2]))}
        steps[name] = command(name, "{{ task.index }}", **fields)
    limits: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        limits["max_concurrent_tasks"] = draw(st.integers(1, 3))
    if draw(st.integers(0, 4)) == 0:
        limits["max_failures"] = draw(st.integers(0, 2))
    return job(steps, **limits)


@dataclass
class Campaign:
    """Carries out one run on two hosts."""

    r: Runs
    definition: JobDefinition
    fails: set[tuple[str, int]]
    """Tasks, as step and index, that fail at each attempt."""
    run: UUID = field(default_factory=uuid4)
    number: int = 0
    stopped: bool = False
    touched: bool = False
    """A task was cancelled by hand, or a step timed out."""

    async def act(self, action: str, which: int) -> None:
        host = list(self.r.hosts.values())[which % 2]
        held = list(host.held.values())[: 1 + which % 3]
        if action == "claim":
            await self.claim(which % 2, 1 + which % 3)
        elif action == "end":
            await self.end(which % 2, held)
        elif action in {"advance", "both", "resolve"}:
            await self.carry_on(action, which % 2, held)
        elif action == "cancel task" and held:
            await self.cancel_task(held[0])
        elif which < 3:
            await self.limit(action)

    async def carry_on(self, action: str, at: int, held: list[ClaimedTask]) -> None:
        store = self.r.w.store
        if action == "resolve":
            await resolve_all(store)
        elif action == "advance":
            await advance_run(store, self.number)
        else:
            twice = (advance_run(store, self.number) for _ in range(2))
            await asyncio.gather(self.end(at, held), *twice)

    async def limit(self, action: str) -> None:
        """Cancel the run, or let a time limit pass."""
        w = self.r.w
        if action == "cancel":
            await self.stop(CancelRun(grace_seconds=1))
        elif action == "skip cleanup":
            await self.stop(CancelRun(skip_cleanup=True))
        elif action == "timeout":
            await w.rows("UPDATE runs SET deadline = now() WHERE id = %s", self.number)
            self.stopped = True
        elif action == "step timeout":
            self.touched = True
            await w.rows(
                "UPDATE run_steps SET deadline = now() WHERE run_id = %s AND state = 'running'",
                self.number,
            )

    async def stop(self, asked: CancelRun) -> None:
        self.stopped = True
        try:
            await cancel_run(self.r.w.store, self.run, asked)
        except InvalidTransition:
            assert (await self.r.view(self.run)).state in RUN.terminal

    async def cancel_task(self, task: ClaimedTask) -> None:
        self.touched = True
        name, _ = await self.place(task)
        steps = {step.name: step for step in (await self.r.view(self.run)).steps}
        group = steps[name].task_group_id
        assert group is not None
        await cancel_tasks(self.r.w.store, group, CancelTasks(task_ids=(task.task_id,)))

    async def claim(self, at: int, most: int) -> None:
        host = list(self.r.hosts.values())[at]
        for task in (await host.claim(most)).tasks:
            await self.check_may_start(task)

    async def check_may_start(self, task: ClaimedTask) -> None:
        """A task has a step whose conditions hold for what the rows of tasks say."""
        name, index = await self.place(task)
        view = await self.r.view(self.run)
        states = {step.name: step for step in view.steps}
        for before, outcome in self.definition.steps[name].after.items():
            rows = await self.r.w.rows(
                "SELECT r.state, p.start + t.n - 1 AS index FROM run_steps AS s"
                " JOIN step_tasks AS p ON p.step_id = CASE WHEN s.source = 0 THEN s.id ELSE s.source END"
                " CROSS JOIN LATERAL unnest(p.task_ids) WITH ORDINALITY AS t (id, n)"
                " LEFT JOIN task_result AS r ON r.task_id = t.id WHERE s.run_id = %s AND s.name = %s",
                self.number,
                before,
            )
            ends = {row["index"]: row["state"] for row in rows}
            if outcome == "each":
                assert ends[index] == "succeeded", (name, index, before)
                continue
            assert None not in ends.values(), "a step before it has not ended"
            if outcome == "success":
                assert set(ends.values()) <= {"succeeded"}
                assert states[before].state == "succeeded"
            elif outcome == "failure":
                assert states[before].state == "failed"

    async def place(self, task: ClaimedTask) -> tuple[str, int]:
        (row,) = await self.r.w.rows(
            "SELECT s.name, p.start + t.n - 1 AS index FROM step_tasks AS p"
            " JOIN run_steps AS s ON s.id = p.step_id"
            " CROSS JOIN LATERAL unnest(p.task_ids) WITH ORDINALITY AS t (id, n) WHERE t.id = %s",
            task.task_id,
        )
        return row["name"], row["index"]

    async def end(self, at: int, tasks: list[ClaimedTask]) -> None:
        host = list(self.r.hosts.values())[at]

        def judge(words: list[str], attempt: int) -> Any:
            return (words[0], int(words[1])) not in self.fails and None

        await self.r.end(host, tasks, judge)

    async def finish(self) -> None:
        for _ in range(200):
            await resolve_all(self.r.w.store)
            await advance_due(self.r.w.store)
            if (await self.r.view(self.run)).state in RUN.terminal:
                return
            for at, host in enumerate(self.r.hosts.values()):
                await self.claim(at, 100)
                await self.end(at, list(host.held.values()))
        raise AssertionError(f"the run never ends: {await self.r.view(self.run)}")

    async def check(self) -> None:
        w, view = self.r.w, await self.r.view(self.run)
        await w.check()
        for table in ("step_ends", "open_task"):
            left = await w.value(
                f"SELECT count(*) FROM {table} AS x JOIN run_steps AS s ON s.id = x.step_id"  # noqa: S608
                " WHERE s.run_id = %s",
                self.number,
            )
            assert left == 0, table
        for step in view.steps:
            await self.check_counts(step)
        assert view.tasks_open == 0
        states = {step.name: step.state.value for step in view.steps}
        if not self.stopped and view.stopped_by is None and not self.touched:
            self.check_states(view, states)
        if view.state == "success":
            assert set(states.values()) <= {"succeeded", "skipped"}
        if view.state == "cancelled":
            assert view.stopped_by == "cancel"
            assert "cancelled" in states.values()
        if view.stopped_by is None:
            assert view.state == ("failed" if "failed" in states.values() else "success")

    async def check_counts(self, step: StepInfo) -> None:
        tasks = await self.r.tasks(self.run, step.name)
        assert [one.index for one in tasks] == list(range(step.created))
        ended = [one.state.value for one in tasks]
        counts = (ended.count("succeeded"), ended.count("failed"), ended.count("cancelled"))
        assert counts == (step.succeeded, step.failed, step.cancelled)
        assert step.open == 0
        assert step.state.value in {"succeeded", "failed", "skipped", "cancelled"}
        if step.state == "succeeded":
            assert step.succeeded == step.total
        if step.state == "skipped":
            assert step.created == 0

    def check_states(self, view: RunView, states: Mapping[str, str]) -> None:
        """Compare with what the definition and the tasks that fail say, without the counters."""
        expected: dict[str, str] = {}
        totals: dict[str, int] = {}
        bad: dict[str, set[int]] = {}
        for name, step in sorted(self.definition.steps.items()):
            each = step.each_of[0] if step.each_of else None
            totals[name] = totals[each] if each else int(step.count or 0)
            if not all(MET[outcome](expected[one]) for one, outcome in step.after.items()):
                expected[name] = "skipped"
                bad[name] = set(range(totals[name]))
                continue
            bad[name] = {at for at in range(totals[name]) if (name, at) in self.fails}
            bad[name] |= bad[each] if each else set()
            expected[name] = "failed" if bad[name] else "succeeded"
        assert states == expected
        assert view.state == ("failed" if "failed" in expected.values() else "success")


@settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    definition=definitions(),
    acts=ACTS,
    fails=st.sets(st.tuples(st.integers(0, MOST_STEPS - 1), st.integers(0, 2)), max_size=4),
    again=st.booleans(),
)
def test_random_runs_end_as_their_tasks_say(
    database: str,
    definition: dict[str, Any],
    acts: list[tuple[str, int]],
    fails: set[tuple[int, int]],
    again: bool,
) -> None:
    failing = {(f"s{step}", index) for step, index in fails}
    asyncio.run(_carry_out(database, definition, acts, failing, again=again))


async def _carry_out(
    database: str,
    definition: dict[str, Any],
    acts: list[tuple[str, int]],
    fails: set[tuple[str, int]],
    *,
    again: bool,
) -> None:
    async with Store.open(StoreOptions(database_url=database)) as store:
        name = f"u{uuid4().hex}"
        user = await create_user(store, name)
        r = Runs(World(store, user.user_id), user=name)
        await r.begin("one", "two")
        it = Campaign(r, definition_of(r.standing(definition)), fails)
        it.run = await r.start(definition)
        it.number = await r.w.value("SELECT id FROM runs WHERE uuid = %s", it.run)
        for action, which in acts:
            await it.act(action, which)
        await it.finish()
        await it.check()
        if again:
            await _rerun(it)


async def _rerun(it: Campaign) -> None:
    """What had succeeded is taken over, and the rest succeeds now."""
    before = {step.name: step for step in (await it.r.view(it.run)).steps}
    it.run = (await rerun(it.r.w.store, it.run, it.r.w.user_id, RerunRun())).run_id
    it.number = await it.r.w.value("SELECT id FROM runs WHERE uuid = %s", it.run)
    it.fails, it.stopped, it.touched = set(), False, False
    await it.finish()
    view = await it.r.view(it.run)
    assert view.state == "success"
    await it.check()
    for step in view.steps:
        earlier = before[step.name]
        if step.taken:
            assert (step.taken, earlier.state in {"failed", "cancelled"}) == (
                earlier.succeeded,
                True,
            )
        elif step.taken_from is not None:
            assert earlier.state in {"succeeded", "skipped"}

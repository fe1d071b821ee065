"""Runs on a real store: start a definition, and do the tasks of its steps as hosts do."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from mitosis.contracts.runs import RunQuery, RunView, StepTask, StepTasksQuery
from mitosis.contracts.wire import ClaimedTask, TaskReport
from mitosis.jobs.reading import definition_of
from mitosis.store.dependencies.resolve import resolve_all
from mitosis.store.runs.starting import NewRun, start_run
from mitosis.store.runs.turns import Turns
from mitosis.store.runs.views import find_run, list_step_tasks, read_run, wait_for_run
from mitosis.store.store import Store
from tests.support.campaigns import Host, World, failed, spec_of, succeeded, world

Judge = Callable[[list[str], int], Any]
"""From the command of a task and its attempt to its result; False: it fails."""


async def advance_due(store: Store) -> None:
    """Carry on every run that has something to do."""
    turns = Turns(store)
    await turns.add_due()
    await turns.take_all()


def command(*words: str, **fields: Any) -> dict[str, Any]:
    """Return a step that runs a command."""
    return {"command": list(words) or ["true"], **fields}


def job(steps: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": "job", "steps": dict(steps), **fields}


@asynccontextmanager
async def runs(database: str, *groups: str) -> AsyncIterator["Runs"]:
    """Yield an empty database with these standing task groups, by default ``one``."""
    async with world(database) as w:
        one = Runs(w)
        await one.begin(*groups)
        yield one


@dataclass
class Runs:
    """A world with standing task groups ``one`` and ``two``, each with a host."""

    w: World
    user: str = "alice"
    hosts: dict[str, Host] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    """The first words of the tasks, in the order of their claims."""

    async def begin(self, *names: str) -> None:
        for name in names or ("one",):
            tag = f"{name}{uuid4().hex}"
            group = await self.w.group(name, group_name=self.user, tags=[tag])
            await self.w.submit(group)
            host = await self.w.leased_host(group, tags=[tag])
            await host.finish((await host.claim()).tasks)
            host.held.clear()
            self.hosts[name] = host

    def standing(self, definition: dict[str, Any]) -> dict[str, Any]:
        """Return the definition with its groups replaced by the standing ones."""
        names = {step.get("group", "main") for step in definition["steps"].values()}
        groups = {name: {"standing": "one" if name == "main" else name} for name in names}
        return {**definition, "groups": groups}

    async def start(
        self, definition: dict[str, Any], *, own: bool = False, carry_on: bool = True, **fields: Any
    ) -> UUID:
        """Start a run in the standing groups, or in its ``own``."""
        given = definition if own else self.standing(definition)
        new = NewRun(
            user_id=self.w.user_id,
            group_name=self.user,
            definition=definition_of(given),
            parameters=fields.pop("parameters", {}),
            **fields,
        )
        run = (await start_run(self.w.store, new)).run_id
        if carry_on:
            await advance_due(self.w.store)
        return run

    async def view(self, run: UUID) -> RunView:
        return await read_run(self.w.store, run)

    async def states(self, run: UUID) -> dict[str, str]:
        return {step.name: step.state.value for step in (await self.view(run)).steps}

    async def wait(self, run: UUID, **query: Any) -> RunView:
        found = await find_run(self.w.store, run)
        return await wait_for_run(self.w.store, found, RunQuery(**query))

    async def tasks(self, run: UUID, step: str, **query: Any) -> list[StepTask]:
        """Return all tasks of a step."""
        items: list[StepTask] = []
        after = None
        while True:
            asked = StepTasksQuery(after=after, **query)
            page = await list_step_tasks(self.w.store, run, step, asked)
            items += page.items
            if (after := page.next) is None:
                return items

    async def work(
        self, judge: Judge = lambda words, attempt: None, *, most: int = 100, group: str = "one"
    ) -> int:
        """Claim tasks, end each as the judge says, and carry on the runs; return how many."""
        host = self.hosts[group]
        tasks = (await host.claim(most)).tasks
        await self.end(host, tasks, judge)
        await self.carry_on()
        return len(tasks)

    async def carry_on(self) -> None:
        """Do what API processes do when tasks have ended."""
        await resolve_all(self.w.store)
        await advance_due(self.w.store)

    async def end(self, host: Host, tasks: list[ClaimedTask], judge: Judge) -> None:
        reports = []
        for task in tasks:
            words = list(spec_of(task).command or [])
            self.started.append(words[0])
            reports.append(_report(task, judge(words, task.attempt)))
            host.held.pop(task.task_id, None)
        if reports:
            await host.report(*reports)

    async def finish(
        self, judge: Judge = lambda words, attempt: None, *, rounds: int = 100
    ) -> None:
        """Work until nothing is left to claim."""
        await self.carry_on()
        for _ in range(rounds):
            done = 0
            for group in self.hosts:
                done += await self.work(judge, group=group)
            if not done:
                return
        raise AssertionError("tasks without an end")


def _report(task: ClaimedTask, result: Any) -> TaskReport:
    if result is False:
        return failed(task, exit_code=1)
    return succeeded(task, detail=json.dumps({"result": result}).encode())

"""Objects of every kind that calls can name, and callers of every kind; made again as calls end them."""

import random
from collections import defaultdict
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2

from api.auth import Subject
from api.service import RunningApi
from mitosis.client.client import Client
from mitosis.contracts.agent_http import EnvironmentChange
from mitosis.contracts.http import RegisteredManager, RegisterManager, TaskGroupSpec
from mitosis.contracts.wire import ClaimTasks, Outcome, ReportTasks, TaskReport
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.users.accounts import add_member, create_user, ensure_admin
from tests.support.http_api import hello
from tests.support.manager_api import ManagerApi
from tests.support.waiting import wait_until_async

VALUE, NAME = "planted-value-0451", "PLANTED_NAME"
ENVIRONMENT = {NAME: VALUE}
HOOK = {"command": ["true"], "environment": ENVIRONMENT}
USERS = ("ann", "reader")
MOST_LEARNED = 30
LEASE_SECONDS = 10.0
LEARNED = {
    "task_group_id": ("task_group_id", "reference"),
    "task_uuid": ("task_uuid",),
    "manager_id": ("manager_id",),
    "run_id": ("run_id",),
    "next": ("after",),
}
"""By the member of an answer: the parameters that it is a value of."""


class World:
    """Pools of values by the name of the parameter or member, and tokens by the name of their holder."""

    def __init__(self, api: RunningApi, *, scheduled: bool) -> None:
        """``scheduled``: a control worker makes the decisions of scheduling."""
        self.api, self.scheduled = api, scheduled
        self.pool: defaultdict[str, list[Any]] = defaultdict(list)
        self.tokens: dict[str, str | None] = {"nobody": None}
        self.made = 0
        self.without_lease = 0

    def some(self, name: str, dice: random.Random) -> Any:
        """A value for ``name``, or None if there is none."""
        values = self.pool[name]
        return dice.choice(values) if values else None

    def learn(self, answer: Any) -> None:
        """Keep what the members of an answer name, for later calls."""
        if isinstance(answer, list):
            for item in answer[:5]:
                self.learn(item)
        elif isinstance(answer, dict):
            for key, value in answer.items():
                if isinstance(value, str):
                    for name in LEARNED.get(key, ()):
                        self._keep(name, value)
                else:
                    self.learn(value)

    def _keep(self, name: str, value: Any) -> None:
        values = self.pool[name]
        if value not in values:
            values.append(value)
            del values[:-MOST_LEARNED]

    async def renew(self) -> None:
        """Make new objects, and let every caller in again."""
        self.made += 1
        await self._let_in()
        async with Client(self.api.url, str(self.tokens["ann"])) as ann:
            await self._make(ann, self.made)

    async def _let_in(self) -> None:
        store, signer = self.api.app_state.store, self.api.app_state.signer
        await ensure_admin(store, "admin")
        async with store.database.connection() as connection:
            cursor = await connection.execute("SELECT username FROM users")
            known = {row["username"] for row in await cursor.fetchall()}
        for name in set(USERS) - known:  # a hash of a password takes tens of milliseconds
            await create_user(store, name, "secret words")
        await add_member(store, "ann", "reader", "read")
        async with store.database.connection() as connection:
            await connection.execute("UPDATE users SET state = 'active' WHERE state <> 'active'")
            cursor = await connection.execute("SELECT username, uuid, token_version FROM users")
            rows = await cursor.fetchall()
        store.users.clear()
        for row in rows:
            if row["username"] in (*USERS, "admin"):
                subject = Subject("user", row["uuid"], row["token_version"])
                self.tokens[row["username"]] = signer.issue(subject, timedelta(hours=1)).token

    async def _make(self, ann: Client, n: int) -> None:
        tag, name = f"t{n}", f"work-{n}"
        of_tag = RegisterManager(name=f"host-{n}", tags=frozenset({tag}))
        registered = await ann.register_manager(
            of_tag
        )  # first: a group has the hosts of its making
        plan = {"worker_count": 1, "environment": ENVIRONMENT}
        spec = TaskGroupSpec.model_validate(
            {"name": name, "tags": [tag], "priority": 100, "worker_allocation_plan": plan}
            | {f"environment_{kind}": HOOK for kind in ("setup_hook", "teardown_hook", "probe")}
        )
        group = (await ann.create_group(spec)).task_group_id
        other = (
            await ann.create_group(TaskGroupSpec(name=f"open-{n}", tags=frozenset({"no-host"})))
        ).task_group_id
        tasks = [{"command": ["true"], "environment": ENVIRONMENT}] * 6
        for reference in (group, other):
            await ann.submit(reference, tasks)
        first = [task.task_uuid async for task in ann.tasks(group)]
        await ann.save_template(f"saved-{n}", task_group=name)
        job = f"etl-{n}"
        await ann.define_job({"name": job, "steps": {"one": {"command": ["true"]}}})
        await ann.create_schedule(job, cron="@daily")
        await ann.define_job({"name": f"bare-{n}", "steps": {"one": {"command": ["true"]}}})
        run, over = await ann.start_job(job), await ann.start_job(job)
        await ann.cancel_run(over.run_id)
        spare = await ann.register_manager(RegisterManager(name=f"spare-{n}"))
        self._take(
            {
                "reference": [group, f"ann/{name}", name, other],
                "reference of jobs": [f"ann/{job}", f"ann/bare-{n}"],
                "reference of schedules": [f"ann/{job}"],
                "reference of task-group-templates": [f"ann/saved-{n}"],
                "task_group": [f"ann/{name}", group],
                "task_group_id": [group, other],
                "task_uuid": first,
                "template": [f"saved-{n}"],
                "job": [job],
                "schedule": [job],
                "step": ["one"],
                "run_id": [run.run_id, over.run_id],
                "group_name": ["ann"],
                "username": ["ann", "reader"],
                "manager_id": [spare.manager_id],
            }
        )
        await self._host(ann, registered, n, group)
        await self._service(n)

    def _take(self, values: dict[str, list[Any]]) -> None:
        for name, those in values.items():
            self.pool[name] = [value if isinstance(value, int) else str(value) for value in those]

    async def _host(self, ann: Client, registered: RegisteredManager, n: int, group: UUID) -> None:
        """A host with a prepared lease that has claimed four tasks and reported one."""
        self.tokens["agent"] = registered.token
        async with ManagerApi(self.api.url, registered.token) as agent:
            said = await agent.hello(hello(machine_id=f"machine-{n}"))

            async def offered() -> bool:
                if not self.scheduled:
                    await assign_round(self.api.app_state.store)
                return bool((await ann.group(group)).leases)

            try:
                await wait_until_async(offered, LEASE_SECONDS)
            except (
                AssertionError
            ):  # a group that a call has made takes the host: the old values stay
                self.without_lease += 1
                return
            epoch = (await ann.group(group)).leases[0].epoch
            await agent.take(epoch)
            for event in ("preparing", "prepared"):
                change = {"event": event, "epoch": epoch, "fingerprint": "f"}
                await agent.change_environment(group, EnvironmentChange.model_validate(change))
            claim = ClaimTasks(epoch=epoch, claim_seq=1, acked_seq=0, max_tasks=4)
            claimed = (await agent.claim(claim)).tasks
            done = claimed[0]
            report = TaskReport(
                task_id=done.task_id, attempt=done.attempt, outcome=Outcome.SUCCEEDED
            )
            await agent.report_tasks(ReportTasks(epoch=epoch, reports=[report]))
        self._keep("manager_id", str(registered.manager_id))
        self._take(
            {
                "epoch": [epoch],
                "claim_seq": [1, 2, 3],
                "acked_seq": [0, 1],
                "incarnation": [said.incarnation],
                "Mitosis-Incarnation": [said.incarnation],
                "task_id": [task.task_id for task in claimed],
                "attempt": [1],
                "machine_id": [f"machine-{n}"],
            }
        )

    async def _service(self, n: int) -> None:
        """A worker service of ann with a named task to claim."""
        token = str(self.tokens["ann"])
        named = {"namespace": "n", "name": "t", "version": "1", "configuration": ENVIRONMENT}
        body = {"worker_id": f"service-{n}", "groups": ["ann"], "supported_tasks": [named]}
        made = await post(self.api.url, token, "/workers", body)
        self.tokens["service"] = made["token"]
        beat = {"incarnation": made["incarnation"]}
        await post(self.api.url, made["token"], "/workers/heartbeat", beat)
        group = {"name": f"served-{n}", "kind": "service"}
        served = await post(self.api.url, token, "/task-groups", group)
        task = {"named_task": "n/t@1", "arguments": {"x": 1}}
        where = f"/task-groups/{served['task_group_id']}/tasks"
        await post(self.api.url, token, where, {"tasks": [task] * 3})
        self._take({"worker_id": [f"service-{n}"], "namespace": ["n"], "name": ["t"]})
        self._take({"version": ["1"], "named_task": ["n/t@1"]})
        for name, value in (
            ("reference", served["task_group_id"]),
            ("incarnation", made["incarnation"]),
        ):
            self._keep(name, value)


async def post(url: str, token: str, path: str, body: dict[str, Any]) -> Any:
    """The answer to one call that succeeds."""
    async with httpx2.AsyncClient(trust_env=False, verify=False) as http:
        headers = {"Authorization": f"Bearer {token}"}
        answer = await http.post(f"{url}/api/v1{path}", json=body, headers=headers)
        assert answer.is_success, answer.text
        return answer.json()

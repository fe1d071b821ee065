"""The calls of an agent over HTTP: hello, take, environments, claim, report, heartbeat, goodbye."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from mitosis.contracts.agent_http import EnvironmentChange, HookReport, LeaseGrant
from mitosis.contracts.errors import (
    InvalidRequest,
    InvalidTransition,
    LeaseLost,
    ManagerIdInUse,
    NotFound,
    Superseded,
)
from mitosis.contracts.hook import HookSpec
from mitosis.contracts.http import RegisterManager, TaskGroupInfo, TaskGroupSpec
from mitosis.contracts.lifecycle import EnvironmentState, ManagerState, TaskState
from mitosis.contracts.request_fields import accepted_fields
from mitosis.contracts.wire import (
    ClaimTasks,
    Held,
    LeaseStanding,
    Outcome,
    Renewal,
    ReportStatus,
    ReportTasks,
    TaskAttempt,
    TaskReport,
)
from mitosis.store.control.control_store import ControlStore
from mitosis.store.leases.scheduler import assign_round
from mitosis.store.managers.hello import say_hello
from mitosis.store.users.accounts import add_member
from tests.support.http_api import Api, hello, in_process_api, problem, said_hello
from tests.support.manager_api import ManagerApi

SPEC = TaskGroupSpec(
    name="work",
    environment_setup_hook=HookSpec(command=("true",)),
    environment_teardown_hook=HookSpec(command=("rm", "-r", "x")),
)


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    async with in_process_api(database) as opened:
        yield opened


async def group_with_tasks(api: Api, count: int = 3) -> TaskGroupInfo:
    async with api.client() as client:
        group = await client.create_group(SPEC)
        tasks = [{"command": ["echo", str(number)]} for number in range(count)]
        await client.submit(group.task_group_id, tasks)
        return group


async def taken(api: Api, manager: ManagerApi) -> LeaseGrant:
    """A lease that was offered and taken, its environment ready."""
    await assign_round(api.app_state.store)
    answer = await manager.hello(hello())  # repeated: the same answer, no new epoch
    async with api.client() as client:
        (lease,) = (await client.group("work")).leases
    grant = await manager.take(lease.epoch)
    assert answer.incarnation == 1
    for change in (
        EnvironmentChange(event="preparing", epoch=grant.epoch, fingerprint="f"),
        EnvironmentChange(event="prepared", epoch=grant.epoch, fingerprint="f"),
    ):
        await manager.change_environment(grant.task_group_id, change)
    return grant


def claim(epoch: int, seq: int = 1, **changes: Any) -> ClaimTasks:
    return ClaimTasks(epoch=epoch, claim_seq=seq, acked_seq=seq - 1, **{"max_tasks": 10, **changes})


def succeeded(task_id: int, attempt: int = 1, **changes: Any) -> TaskReport:
    now = datetime.now(UTC).timestamp()
    return TaskReport(
        task_id=task_id,
        attempt=attempt,
        outcome=Outcome.SUCCEEDED,
        exit_code=0,
        started_at=now - 1,
        finished_at=now,
        **changes,
    )


class LaterRenewal(Renewal, kw_only=True):
    """With a field that this API does not know."""

    progress: dict[str, float] = msgspec.field(default_factory=dict)


LaterRenewal.__name__ = Renewal.__name__


async def test_hello_and_renewals_list_the_fields_that_are_accepted(api: Api) -> None:
    """So that an agent of a later version leaves out the others, which are refused."""
    async with said_hello(api) as (manager, answer):
        assert answer.request_fields == accepted_fields()
        later = LaterRenewal(incarnation=1, progress={"7": 0.5})
        assert (await manager.renew(later)).request_fields == accepted_fields()
        headers = {"Authorization": f"Bearer {manager.token}"}
        sent = msgspec.json.encode(later)
        raw = await api.call(
            "POST", "/managers/heartbeat", token=None, headers=headers, content=sent
        )
        with problem(raw, 422, "invalid_request") as document:
            assert document["field"] == "progress"


@pytest.mark.spec("S002-90", "S002-89", "S000-43", "S000-44", "S000-47", "S000-48", "S002-262")
async def test_a_lease_from_offer_to_result(api: Api) -> None:
    group = await group_with_tasks(api)
    async with said_hello(api) as (manager, answer):
        assert (answer.lease, answer.owed) == (None, ())
        assert answer.temporal_task_queue == f"mitosis-host-{answer.manager_id}"
        grant = await taken(api, manager)
        assert (grant.task_group_id, grant.task_group_name) == (group.task_group_id, "work")
        assert grant.environment_setup_hook == SPEC.environment_setup_hook
        again = await manager.grant(grant.epoch)
        assert (again.epoch, again.environment_state) == (grant.epoch, EnvironmentState.READY)
        claimed = await manager.claim(claim(grant.epoch))
        assert claimed.standing is LeaseStanding.ACTIVE
        commands = [msgspec.json.decode(task.spec)["command"] for task in claimed.tasks]
        assert commands == [["echo", "0"], ["echo", "1"], ["echo", "2"]]
        reports = [
            succeeded(task.task_id, detail=msgspec.Raw(b'{"stdout":"a\\u0000b"}'))
            for task in claimed.tasks
        ]
        body = ReportTasks(epoch=grant.epoch, reports=reports)
        assert (await manager.report_tasks(body)).statuses == [ReportStatus.COMMITTED] * 3
        assert (await manager.report_tasks(body)).statuses == [ReportStatus.DUPLICATE] * 3
    async with api.client() as client:
        tasks = [task async for task in client.tasks("work")]
        assert {task.state for task in tasks} == {TaskState.SUCCEEDED}
        assert tasks[0].detail == {"stdout": "a\ufffdb"}
        assert (await client.group("work")).tasks_succeeded == 3
        (shown,) = [m async for m in client.managers()]
        assert shown.state is ManagerState.EXECUTING
        assert await client.manager(shown.manager_id) == shown


@pytest.mark.spec("S002-93", "S002-261")
async def test_a_heartbeat_tells_and_learns(api: Api) -> None:
    await group_with_tasks(api)
    async with said_hello(api) as (manager, answer):
        assert (await manager.renew(Renewal(incarnation=1))).standing is None
        async with api.client() as client:
            assert (await client.manager(answer.manager_id)).state is ManagerState.IDLE
        grant = await taken(api, manager)
        tasks = (await manager.claim(claim(grant.epoch))).tasks
        first, second, _ = [TaskAttempt(task_id=t.task_id, attempt=t.attempt) for t in tasks]
        renewal = Renewal(
            incarnation=1,
            epoch=grant.epoch,
            started=[first],
            returned=[second],
            held=Held(acked_seq=1, task_ids=[first.task_id]),
        )
        assert (await manager.renew(renewal)).standing is LeaseStanding.ACTIVE
        again = await manager.claim(claim(grant.epoch, 2))
        assert {task.task_id for task in again.tasks} == {t.task_id for t in tasks[1:]}
        async with api.client() as client:
            await client.cancel("work")
        order = (await manager.renew(Renewal(incarnation=1, epoch=grant.epoch))).order
        assert order is not None
        assert order.kill


@pytest.mark.spec("S000-21", "S000-22", "S000-23", "S000-26")
@pytest.mark.parametrize("kills", [True, False])
async def test_a_cancel_says_why_and_what_becomes_of_what_runs(api: Api, *, kills: bool) -> None:
    group = await group_with_tasks(api, 4)
    path, body = "/task-groups/work/cancel", {"cancel_running_tasks": kills}

    async def cancelled(**reason: str) -> dict[str, Any]:
        answer = await api.call("POST", path, json=body | reason)
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
        stats: dict[str, Any] = answer.json()["cancel_stats"]
        return stats

    async with said_hello(api) as (manager, _):
        grant = await taken(api, manager)
        tasks = (await manager.claim(claim(grant.epoch, max_tasks=2))).tasks
        runs, waits = [TaskAttempt(task_id=t.task_id, attempt=t.attempt) for t in tasks]
        await manager.renew(Renewal(incarnation=1, epoch=grant.epoch, started=[runs]))
        expected = {
            "ready_cancelled": 3,  # claimed is not running
            "running_cancelled": int(kills),
            "running_not_cancellable": 0,
        }
        assert await cancelled() == expected
        renewal = Renewal(incarnation=1, epoch=grant.epoch, returned=[waits])
        order = (await manager.renew(renewal)).order
        assert order is not None
        assert (order.kill, order.reason) == (kills, "Task group cancelled")
        await ControlStore(api.app_state.store).discard(group.task_group_id)
        end = TaskReport(
            task_id=runs.task_id,
            attempt=runs.attempt,
            outcome=Outcome.CANCELLED if kills else Outcome.SUCCEEDED,
        )
        await manager.report_tasks(ReportTasks(epoch=grant.epoch, reports=[end]))
        assert await cancelled() == expected, "the same when all of it has happened"
    async with api.client() as client:
        shown = await client.group("work")
        assert (shown.tasks_cancelled, shown.tasks_unfinished) == (3 + kills, 0)
        states = [task.state async for task in client.tasks("work")]
        assert states[1:] == [TaskState.CANCELLED] * 3
        assert states[0] is (TaskState.CANCELLED if kills else TaskState.SUCCEEDED)


@pytest.mark.spec("S000-21")
async def test_the_reason_of_a_cancel_reaches_the_host(api: Api) -> None:
    await group_with_tasks(api)
    async with said_hello(api) as (manager, _):
        grant = await taken(api, manager)
        await manager.claim(claim(grant.epoch))
        answer = await api.call("POST", "/task-groups/work/cancel", json={"reason": "wrong input"})
        assert answer.json()["reason"] == "wrong input"
        order = (await manager.renew(Renewal(incarnation=1, epoch=grant.epoch))).order
        assert order is not None
        assert order.reason == "wrong input"


async def test_incarnations(api: Api) -> None:
    async with said_hello(api) as (manager, _):
        assert (await manager.hello(hello(2))).incarnation == 2
        with pytest.raises(Superseded):
            await manager.hello(hello(1))
        with pytest.raises(ManagerIdInUse):
            await manager.hello(hello(3, "another machine"))
        assert (await manager.hello(hello(1, "another machine", take_over=True))).incarnation > 2


async def test_a_lease_belongs_to_one_manager(api: Api) -> None:
    await group_with_tasks(api, 1)  # wants one host
    async with said_hello(api) as (manager, _), said_hello(api, "host-2") as (other, _):
        grant = await taken(api, manager) if await _offered_to(api, "host-1") else None
        if grant is None:
            manager, other = other, manager
            grant = await taken(api, manager)
        for call in (other.take, other.grant):
            with pytest.raises(LeaseLost):
                await call(grant.epoch)
        assert (await other.claim(claim(grant.epoch))).standing is LeaseStanding.GONE
        with pytest.raises(NotFound):
            await other.environment(grant.task_group_id)
        change = EnvironmentChange(event="preparing", epoch=grant.epoch, fingerprint="f")
        with pytest.raises(LeaseLost):
            await other.change_environment(grant.task_group_id, change)


async def _offered_to(api: Api, name: str) -> bool:
    await assign_round(api.app_state.store)
    async with api.client() as client:
        return [lease.manager_name for lease in (await client.group("work")).leases] == [name]


async def test_an_environment_goes_its_way(api: Api) -> None:
    await group_with_tasks(api)
    async with said_hello(api) as (manager, _):
        grant = await taken(api, manager)
        seen = await manager.environment(grant.task_group_id)
        assert seen.environment_teardown_hook == SPEC.environment_teardown_hook
        with pytest.raises(InvalidTransition):  # a live lease keeps it
            await manager.change_environment(
                grant.task_group_id, EnvironmentChange(event="tear_down")
            )
        async with api.client() as client:
            await client.cancel("work")
        await manager.goodbye(grant.epoch)
        await manager.hello(hello(2))
        hook = HookReport(
            state="succeeded", exit_code=0, started_at=datetime.now(UTC), stdout_tail="a\0"
        )
        for change, after in (
            (EnvironmentChange(event="tear_down"), EnvironmentState.TEARING_DOWN),
            (EnvironmentChange(event="cleaned", hook=hook), EnvironmentState.GONE),
        ):
            assert await manager.change_environment(grant.task_group_id, change) is after


async def test_goodbye_gives_everything_back(api: Api) -> None:
    await group_with_tasks(api)
    async with said_hello(api) as (manager, answer):
        grant = await taken(api, manager)
        await manager.claim(claim(grant.epoch))
        await manager.goodbye(grant.epoch)
        assert (await manager.claim(claim(grant.epoch, 2))).standing is LeaseStanding.GONE
    async with api.client() as client:
        assert {task.state async for task in client.tasks("work")} == {TaskState.READY}
        assert (await client.manager(answer.manager_id)).state is ManagerState.OFFLINE


BAD_BODIES: list[tuple[str, dict[str, Any], str]] = [
    ("tasks/claim", {"epoch": 1}, "claim_seq"),
    ("tasks/claim", {"epoch": 1, "claim_seq": 0, "acked_seq": 0, "max_tasks": 1}, "claim_seq"),
    ("tasks/claim", {"epoch": 1, "claim_seq": 1, "acked_seq": 0, "max_tasks": 1001}, "max_tasks"),
    ("tasks/report", {"epoch": 1, "reports": [{}]}, "reports[0].task_id"),
    (
        "tasks/report",
        {"epoch": 1, "reports": [{"task_id": 2**63, "attempt": 1, "outcome": "failed"}]},
        "reports[0].task_id",
    ),
    ("heartbeat", {}, "incarnation"),
    ("heartbeat", {"incarnation": 1, "load": 1}, "load"),
    ("hello", {"incarnation": 0}, "incarnation"),
    ("goodbye", {"epoch": -1}, "epoch"),
    ("leases/x/take", {}, "epoch"),
    (f"environments/{uuid4()}", {"event": "explode"}, "event"),
    (
        f"environments/{uuid4()}",
        {"event": "cleaned", "hook": {"state": "failed", "started_at": "now"}},
        "hook.started_at",
    ),
]


async def test_bad_bodies_are_refused_by_field(api: Api) -> None:
    async with said_hello(api) as (manager, _):
        token = token_of(manager)
        for path, body, field in BAD_BODIES:
            answer = await api.call("POST", f"/managers/{path}", token=token, json=body)
            with problem(answer, 422, "invalid_request") as document:
                assert document["field"] == field, path
        body = {"epoch": 1, "reports": [{"task_id": 1, "attempt": 1, "outcome": "failed"}] * 5_001}
        answer = await api.call("POST", "/managers/tasks/report", token=token, json=body)
        with problem(answer, 413, "too_large") as document:
            assert document["limit"] == 5_000


def token_of(manager: ManagerApi) -> str:
    return manager.token


@pytest.mark.spec("S002-47", "S002-88")
async def test_registration_names_groups_and_roles(api: Api) -> None:
    ann = await api.user("ann")
    await api.user("ben")
    async with api.client(ann) as client:
        made = await client.register_manager(
            RegisterManager(
                name="host",
                tags=frozenset({"gpu"}),
                labels=frozenset({"rack-7"}),
                groups=("ann:write",),
                lifetime=timedelta(hours=2),
            )
        )
        left = made.expires_at - datetime.now(UTC)
        assert timedelta(minutes=119) < left <= timedelta(hours=2)
        shown = await client.manager(made.manager_id)
        assert (shown.labels, shown.groups) == (["rack-7"], ["ann"])
        assert (shown.name, shown.tags, shown.state) == ("host", ["gpu"], ManagerState.OFFLINE)
        with pytest.raises(InvalidRequest):
            await client.register_manager(RegisterManager(groups=("ann:owner",)))
    for body, status, code in (
        ({"groups": ["nobody"]}, 404, "not_found"),
        ({"groups": ["ben"]}, 404, "not_found"),
        ({"lifetime": 0}, 422, "invalid_request"),
    ):
        with problem(await api.call("POST", "/managers", token=ann, json=body), status, code):
            pass
    async with api.client(await api.user("carl")) as carl:
        assert [m async for m in carl.managers()] == []
        with pytest.raises(NotFound):
            await carl.manager(made.manager_id)


async def offered(api: Api, *hosts: UUID) -> list[str | None]:
    """The task group whose lease each host has after a round."""
    await assign_round(api.app_state.store)
    async with api.client() as client:
        leases = [(await client.manager(host)).lease for host in hosts]
    return [None if lease is None else lease.task_group_name for lease in leases]


@pytest.mark.spec("S000-15", "S000-16", "S000-18", "S000-20")
async def test_new_tags_change_no_list_until_it_is_refreshed(api: Api) -> None:
    async with api.client() as client:
        group = await client.create_group(TaskGroupSpec(name="work", tags=frozenset({"gpu"})))
        gpu = RegisterManager(name="gpu", tags=frozenset({"gpu"}))
        cpu = RegisterManager(name="cpu", tags=frozenset({"cpu"}))
        old, new, named = [
            (await client.register_manager(host)).manager_id
            for host in (gpu, cpu, RegisterManager(name="named"))
        ]
        for host in (old, new, named):
            await say_hello(api.app_state.store, host, hello())
        await client.submit("work", [{"command": ["x"]}] * 9)
        await client.add_managers("work", [named])
        first = await client.refresh_managers("work")
        assert (first.added_managers, first.user_specified_kept) == ([], [named])
        body = {"tags": ["cpu"], "expected_updated_at": group.updated_at.isoformat()}
        changed = await api.call("PUT", "/task-groups/work/tags", json=body)
        assert changed.json()["tags"] == ["cpu"]
        with problem(await api.call("PUT", "/task-groups/work/tags", json=body), 409, "conflict"):
            pass
        listed = {one.manager_id for one in await client.group_managers("work")}
        assert listed == {old, named}, "new tags alone change no list"
        assert await offered(api, old, new, named) == ["work", None, "work"]
        second = await client.refresh_managers("work")
        assert (second.added_managers, second.removed_managers) == ([new], [old])
        assert second.user_specified_kept == [named]
        assert await offered(api, old, new, named) == [None, "work", "work"]
        await client.remove_managers("work", [named])
        (left,) = await client.group_managers("work")
        assert (left.manager_id, left.assignment_method) == (new, "tag_matched")
        assert left.matched_tags == ["cpu"]
    await _only_who_may_write_refreshes(api, group.task_group_id)


async def _only_who_may_write_refreshes(api: Api, task_group_id: UUID) -> None:
    ben = await api.user("ben")
    await add_member(api.app_state.store, "admin", "ben", "read")
    path = f"/task-groups/{task_group_id}"
    for method, below, body in (
        ("POST", "/managers/refresh", None),
        ("PUT", "/tags", {"tags": []}),
    ):
        answer = await api.call(method, path + below, token=ben, json=body)
        with problem(answer, 403, "permission_denied"):
            pass


@pytest.mark.spec("S000-13", "S000-14")
async def test_the_managers_of_a_group(api: Api) -> None:
    async with api.client() as client:
        group = await client.create_group(TaskGroupSpec(name="work", tags=frozenset({"gpu"})))
        made = await client.register_manager(RegisterManager(name="host"))
        await client.submit("work", [{"command": ["x"]}])
    host = made.manager_id
    await say_hello(api.app_state.store, host, hello())
    path = f"/task-groups/{group.task_group_id}/managers"

    async def listed() -> list[UUID]:
        return [UUID(item["manager_id"]) for item in (await api.call("GET", path)).json()]

    assert await listed() == []
    assert await offered(api, host) == [None]
    named = {"manager_ids": [str(made.manager_id)], "selection_type": "user_specified"}
    for _ in range(2):  # again is success
        assert (await api.call("POST", path, json=named)).status_code == 204
    assert await listed() == [made.manager_id]
    assert await offered(api, host) == ["work"]
    assert (await api.call("POST", path + "/refresh")).json() == {
        "added_managers": [],
        "removed_managers": [],
        "user_specified_kept": [str(made.manager_id)],
    }
    for _ in range(2):
        assert (await api.call("DELETE", path, json=named)).status_code == 204
        assert await listed() == []
        assert await offered(api, host) == [None], "its offer is withdrawn"
    by_tags = {**named, "selection_type": "tag_matched"}
    with problem(await api.call("POST", path, json=by_tags), 422, "invalid_request"):
        pass
    unknown = {"manager_ids": [str(uuid4())]}
    with problem(await api.call("POST", path, json=unknown), 404, "not_found"):
        pass
    with problem(await api.call("POST", path, json={"manager_ids": []}), 422, "invalid_request"):
        pass


async def test_an_earlier_process_has_no_say_in_what_its_successor_holds(api: Api) -> None:
    async with said_hello(api) as (manager, answer):
        await manager.hello(hello(2))
        manager.set_incarnation(1)
        calls = (
            manager.take(1),
            manager.grant(1),
            manager.environment(uuid4()),
            manager.change_environment(uuid4(), EnvironmentChange(event="tear_down")),
        )
        for call in calls:
            with pytest.raises(Superseded):
                await call
        await manager.goodbye()  # of a process that has ended: too late to change anything
        assert (await manager.renew(Renewal(incarnation=2))).standing is None
        async with api.client() as client:
            assert (await client.manager(answer.manager_id)).state is ManagerState.IDLE
        manager.set_incarnation(2)
        with pytest.raises(LeaseLost):
            await manager.grant(1)
        await manager.goodbye()
        assert (await manager.renew(Renewal(incarnation=2))).standing is LeaseStanding.GONE

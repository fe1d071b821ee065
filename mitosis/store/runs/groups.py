"""The task groups of a run: those that it creates, and standing ones that it uses."""

from dataclasses import dataclass
from uuid import UUID

from mitosis.contracts.accounts import RANK, Role
from mitosis.contracts.errors import InvalidRequest, NotFound, PermissionDenied
from mitosis.contracts.http import TaskGroupSpec
from mitosis.jobs.definition import GroupSettings
from mitosis.jobs.groups import MANAGED, GroupKey, group_fields, groups_of
from mitosis.jobs.rendering import Values
from mitosis.store.groups.definition import insert_group
from mitosis.store.groups.kinds import OF_HOSTS, OF_SERVICES
from mitosis.store.pg.database import Connection
from mitosis.store.pg.rows import fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.runs.rows import Loaded, RunGroup
from mitosis.store.store import Store

SQL = load("runs/groups.sql")


@dataclass(frozen=True, slots=True)
class _Standing:
    uuid: UUID
    kind: str
    role: Role | None


async def add_groups(connection: Connection, store: Store, loaded: Loaded) -> None:
    """Create the task groups of a run that starts, and find the standing ones.

    Raises:
        NotFound: there is no such standing group, or no such user group.
        PermissionDenied: the creator may not submit to a standing group.
        InvalidRequest: a standing group has another kind, or a plan cannot hold.
        UpgradeInProgress: a process that runs does not know groups of a kind.
    """
    run, definition = loaded.run, loaded.definition
    for key, names in groups_of(definition).items():
        steps = [step for step in loaded.steps if step.name in set(names)]
        if all(step.ended for step in steps):  # a rerun has taken them over
            continue
        settings = definition.group_of(names[0])
        if settings.standing is not None:
            task_group = await _standing(connection, loaded, key, settings.standing)
        else:
            spec = _spec(loaded, key, settings)
            task_group = (await insert_group(connection, store, spec, run.creator_id)).uuid
        for step in steps:
            if not step.ended:
                step.task_group = task_group
        is_standing = settings.standing is not None
        loaded.groups[key] = RunGroup(
            name=key.name,
            kind=key.kind,
            task_group=task_group,
            standing=is_standing,
            closed=False,
        )
        given = {
            "run": run.id,
            "name": key.name,
            "kind": key.kind,
            "task_group": task_group,
            "standing": is_standing,
        }
        await connection.execute(SQL["add_group"], given)


async def _standing(connection: Connection, loaded: Loaded, key: GroupKey, name: str) -> UUID:
    group_name, _, own = name.rpartition("/")
    given = {
        "creator": loaded.run.creator_id,
        "group_name": group_name or loaded.run.group_name,
        "name": own,
    }
    field = f"groups.{key.name}.standing"
    found = await fetch_one(connection, _Standing, SQL["standing"], given)
    if found is None or found.role is None:
        raise NotFound(f"there is no task group {name}", field=field)
    if RANK[found.role] < RANK["write"]:
        raise PermissionDenied(
            f"submitting to {name} needs the role write in its user group", field=field
        )
    if found.kind != key.kind:
        raise InvalidRequest(
            f"{name} is of the kind {found.kind}, and steps need one of the kind {key.kind}",
            field=field,
        )
    return found.uuid


def _spec(loaded: Loaded, key: GroupKey, settings: GroupSettings) -> TaskGroupSpec:
    run = loaded.run
    values = Values(
        parameters=run.parameters,
        run=run.shown,
        job={"name": run.job_name, "version": run.version},
    )
    without_effect = OF_SERVICES if key.kind == MANAGED else OF_HOSTS
    fields = group_fields(settings, key.kind, values)
    suffix = "" if key.kind == MANAGED else f"-{key.kind}"
    return TaskGroupSpec(
        name=f"run-{run.uuid.hex[:20]}-{key.name}{suffix}",
        group_name=run.group_name,
        labels=frozenset({f"run:{run.uuid}"}),
        **{name: value for name, value in fields.items() if name not in without_effect},
    )

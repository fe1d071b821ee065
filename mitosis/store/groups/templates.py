"""Saves, finds and deletes templates of task groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb

from mitosis.contracts.errors import AlreadyExists, NotFound
from mitosis.contracts.http import Page
from mitosis.contracts.ids import as_uuid
from mitosis.contracts.templates import FIELDS, TemplateInfo
from mitosis.store.groups.assignment import listed_managers
from mitosis.store.groups.views import read_group
from mitosis.store.pg.paging import decode_cursor, encode_cursor, page_limit
from mitosis.store.pg.rows import fetch_all, fetch_one
from mitosis.store.pg.statements import load
from mitosis.store.store import Store

SQL = load("groups/templates.sql")
MAX_PAGE = 500


@dataclass(frozen=True, slots=True)
class _Saved:
    uuid: UUID


async def save_template(
    store: Store,
    user_id: UUID,
    group_name: str,
    name: str,
    spec: Mapping[str, Any],
    *,
    replace: bool = False,
) -> TemplateInfo:
    """Save a template in a user group.

    Raises:
        NotFound: there is no such user group.
        AlreadyExists: the name is taken, and ``replace`` is not given.
    """
    values = {"user": user_id, "group_name": group_name, "name": name, "spec": Jsonb(dict(spec))}
    statement = SQL["replace_template" if replace else "save_template"]
    try:
        async with store.database.transaction() as connection:
            saved = await fetch_one(connection, _Saved, statement, values)
    except UniqueViolation as error:
        raise AlreadyExists(
            f"the user group has a template called {name}; replace it with --replace", field="name"
        ) from error
    if saved is None:
        raise NotFound("no such user group", field="group_name")
    return await read_template(store, str(saved.uuid))


async def read_template(store: Store, reference: str) -> TemplateInfo:
    """Return the template with this id or ``USERGROUP/NAME``.

    Raises:
        NotFound: there is no such template.
    """
    group_name, _, name = reference.partition("/")
    values = {"template": as_uuid(reference), "group_name": group_name, "name": name}
    async with store.database.connection() as connection:
        found = await fetch_one(connection, TemplateInfo, SQL["template"], values)
    if found is None:
        raise NotFound(f"there is no template {reference}")
    return found


async def list_templates(
    store: Store, viewer_id: UUID, *, after: str | None = None, limit: int = 100
) -> Page[TemplateInfo]:
    """Return the templates of the user's groups (an admin sees all), by user group and name."""
    size = page_limit(limit, MAX_PAGE)
    key = decode_cursor("templates", after, str, str) if after else ("", "")
    values = {"viewer": viewer_id, "limit": size + 1, "after_group": key[0], "after_name": key[1]}
    async with store.database.connection() as connection:
        found = await fetch_all(connection, TemplateInfo, SQL["templates"], values)
    items = found[:size]
    last = items[-1] if len(found) > size else None
    cursor = None if last is None else encode_cursor("templates", last.group_name, last.name)
    return Page(items=items, next=cursor)


async def delete_template(store: Store, template_id: UUID) -> None:
    """Delete a template; task groups that were made of it stay. Idempotent."""
    async with store.database.connection() as connection:
        await connection.execute(SQL["delete_template"], {"template": template_id})


async def fields_of_group(store: Store, task_group_id: UUID) -> dict[str, Any]:
    """Return the fields of a task group that a template can have.

    Raises:
        NotFound: there is no such group.
    """
    info = await read_group(store, task_group_id)
    fields = info.model_dump(mode="json", include=set(FIELDS), exclude_none=True)
    if info.assignment_method == "user_specified":
        named = await listed_managers(store, task_group_id)
        fields["manager_ids"] = [str(one.manager_id) for one in named]
    return fields

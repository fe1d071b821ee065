"""Decides which hosts are members of a task group (C-32): only members are offered to it.

Members are the hosts that its tags matched at its last refresh, and those that a user added, without those
that a user removed. A group is matched when it is created, a host when it registers and at its first hello.
Later changes of tags, on either side, have no effect until the group is refreshed. In a ``user_specified``
group only hosts that a user added are members.

The same rule stands in SQL (``membership.sql``) for statements that must not decide by older facts.
"""

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal, LiteralString, Protocol

from mitosis.store.pg.database import Connection
from mitosis.store.pg.statements import load

SQL = load("leases/membership.sql")
TagMatch = Literal["all", "any"]


@dataclass(frozen=True, slots=True)
class FormerTags:
    """The tags of a host before a change."""

    until_version: int
    tags: frozenset[str]


class TaggedHost(Protocol):
    """What membership reads of a host."""

    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def tags(self) -> frozenset[str]: ...
    @property
    def former_tags(self) -> tuple[FormerTags, ...]: ...


class SelectingGroup(Protocol):
    """What membership reads of a task group."""

    @property
    def name(self) -> str: ...
    @property
    def assignment_method(self) -> Literal["tag_matched", "user_specified"]: ...
    @property
    def tags(self) -> frozenset[str]: ...
    @property
    def tag_match(self) -> TagMatch: ...
    @property
    def member_tags(self) -> frozenset[str]: ...
    @property
    def member_tag_match(self) -> TagMatch: ...
    @property
    def member_version(self) -> int: ...
    @property
    def added(self) -> frozenset[int]: ...
    @property
    def removed(self) -> frozenset[int]: ...


def with_membership(statement: LiteralString) -> LiteralString:
    """Fill in the expressions about membership, such as ``$member$``."""
    for name in (
        "member",
        "may_serve",
        "tags_match",
        "tags_then",
    ):  # each may contain the later ones
        statement = statement.replace(f"${name}$", SQL[name])
    return statement


END_LEASES_OF_OTHERS = with_membership(SQL["end_leases_of_others"])


async def hold_tags(connection: Connection) -> None:
    """Make changes of the tags of hosts and refreshes of task groups take turns, until the commit."""
    await connection.execute(SQL["hold_tags"])


async def end_leases_of_others(connection: Connection, group_number: int) -> None:
    """End the group's leases of hosts that are no longer its members, and poke the scheduler.

    The caller holds the group and its leases. Running tasks finish; what has not started is returned.
    """
    await connection.execute(END_LEASES_OF_OTHERS, {"group_number": group_number})


def is_member(host: TaggedHost, group: SelectingGroup) -> bool:
    """Return whether the host is a member of the group."""
    if host.number in group.added:
        return True
    if group.assignment_method == "user_specified" or host.number in group.removed:
        return False
    then = tags_at(host, group.member_version)
    return tags_fit(then, group.member_tags, group.member_tag_match)


def tags_at(host: TaggedHost, version: int) -> frozenset[str]:
    """Return the tags that the host had at a version; those at its registration if it is younger."""
    return next(
        (former.tags for former in host.former_tags if former.until_version > version), host.tags
    )


def tags_fit(had: Set[str], wanted: Set[str], tag_match: TagMatch) -> bool:
    """Return whether tags of a host match those of a group (C-01)."""
    if tag_match == "all" or not wanted:
        return wanted <= had
    return bool(wanted & had)

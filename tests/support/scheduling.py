"""Small fleets for decisions: hosts 1, 2, 3 ... in one user group, task groups with work, leases."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mitosis.contracts.lifecycle import LeaseState
from mitosis.scheduling.actions import Action, EndLease, Offer, Renew, Wake
from mitosis.scheduling.decide import decide
from mitosis.scheduling.facts import Group, Host, Lease, Progress, Work
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.snapshot import Snapshot

USERS = 1
"""The user group of everything here."""
OTHERS = 2
HOUR = 3600.0
NOW = 100 * HOUR


def host(number: int, **facts: Any) -> Host:
    """A host in contact, with a write role in both user groups."""
    defaults: dict[str, Any] = {
        "name": f"h{number}",
        "cores": (0, 1, 2, 3),
        "serves": frozenset({USERS, OTHERS}),
        "last_contact_at": NOW,
    }
    return Host(number=number, **{**defaults, **facts})


class Fleet:
    """A snapshot that is filled in a few words."""

    def __init__(self, hosts: int = 0, policy: Policy | None = None) -> None:
        self.snapshot = Snapshot(policy)
        for number in range(1, hosts + 1):
            self.snapshot.put_host(host(number))
        self._leases = 1_000

    def host(self, number: int, **facts: Any) -> Host:
        """Change facts of a host, or add it."""
        known = self.snapshot.hosts.get(number)
        made = replace(known.fact, **facts) if known else host(number, **facts)
        self.snapshot.put_host(made)
        return made

    def group(
        self, number: int, *, ready: int = 1, on: Iterable[int] | None = None, **facts: Any
    ) -> Group:
        """A task group with ready tasks. ``on``: its members; all hosts so far if it is not given."""
        work = {name: facts.pop(name) for name in list(facts) if name in Work.__dataclass_fields__}
        members = self.snapshot.host_set(self.snapshot.hosts if on is None else on)
        defaults: dict[str, Any] = {
            "name": f"g{number}",
            "user_group": USERS,
            "user_group_name": "users",
            "created_at": float(number),
            "members": members,
        }
        made = Group(number=number, **{**defaults, **facts})
        self.snapshot.put_group(made, Work(**{"ready": ready, "unfinished": ready, **work}))
        return made

    def put_group(self, number: int, facts: Mapping[str, Any], work: Work | None) -> None:
        """A task group with exactly these facts."""
        self.snapshot.put_group(Group(number=number, name=f"g{number}", **facts), work)

    def work(self, number: int, **facts: Any) -> None:
        """Change what is known about the tasks of a task group."""
        self.snapshot.put_work(number, replace(self.snapshot.groups[number].work, **facts))

    def change_group(self, number: int, **facts: Any) -> None:
        """Change the definition of a task group."""
        self.snapshot.put_group(replace(self.snapshot.groups[number].fact, **facts))

    def lease(self, group: int, host: int, **facts: Any) -> int:
        """A lease that works, its affinity not over; returns its number."""
        self._leases += 1
        defaults: dict[str, Any] = {"taken_at": NOW - HOUR / 2, "affinity_until": NOW + HOUR / 2}
        made = Lease(number=self._leases, group=group, host=host, **{**defaults, **facts})
        self.snapshot.put_lease(made)
        return self._leases

    def idle(self, group: int, host: int, since: float, **facts: Any) -> int:
        """A lease that became idle so many seconds ago."""
        return self.lease(group, host, progress=Progress.ROOM, idle_since=NOW - since, **facts)

    def ending(self, group: int, host: int, for_group: int, since: float = 0.0) -> int:
        """A lease that is being ended for another task group since so many seconds."""
        return self.lease(
            group, host, state=LeaseState.ENDING, for_group=for_group, ending_since=NOW - since
        )

    def change_lease(self, number: int, **facts: Any) -> None:
        """Change facts of a lease."""
        self.snapshot.put_lease(replace(self.snapshot.leases[number], **facts))

    def decide(self, now: float = NOW) -> list[Action]:
        """What is decided."""
        return list(decide(self.snapshot, now))

    def offers(self, now: float = NOW) -> list[tuple[int, int]]:
        """The task groups and hosts of the offers, in their order."""
        return [(a.group, a.host) for a in self.decide(now) if isinstance(a, Offer)]

    def ends(self, now: float = NOW) -> list[EndLease]:
        """The ends of leases, in their order."""
        return [action for action in self.decide(now) if isinstance(action, EndLease)]

    def renewals(self, now: float = NOW) -> list[Renew]:
        """The renewals, in their order."""
        return [action for action in self.decide(now) if isinstance(action, Renew)]

    def wake(self, now: float = NOW) -> Wake | None:
        """The last action if it is a wake."""
        last = self.decide(now)[-1:]
        return last[0] if last and isinstance(last[0], Wake) else None

"""Explains hosts by the decision: every condition with its values, and the smallest change."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mitosis.contracts.explain import Obstacle
from mitosis.scheduling.actions import EndLease, Offer
from mitosis.scheduling.explain import LEFT_OVER, HostChain, explain_group
from mitosis.scheduling.predicates import BY_CODE, Scope
from mitosis.scheduling.smallest_change import Changes
from mitosis.store.leases.kept_fleet import copied_fleet
from mitosis.store.leases.no_host_reasons import Reason
from mitosis.store.leases.reasons import host_reason
from mitosis.store.leases.waiting import Waiting, WaitingHost
from mitosis.store.store import Store


@dataclass(frozen=True, slots=True)
class Decided:
    """What the decision says about the hosts of one task group."""

    chains: Mapping[int, HostChain]
    """By the number of the host."""
    gains: Mapping[int, Offer | EndLease]
    """Hosts that the next round gives to it."""
    smallest: Changes | None
    """The smallest change after which one more host would serve it."""

    @property
    def change(self) -> str | None:
        """Return the smallest change in one line."""
        return None if self.smallest is None else self.smallest.line

    def obstacles(self, host: int) -> Sequence[Obstacle]:
        """Return the conditions that keep a host from the task group.

        Conditions on the task group alone are said once, in its own line. Of a host that nothing else keeps
        from it, the first of them is the reason; of one whose lease is safe for a time, what comes after it.
        """
        chain = self.chains.get(host)
        if chain is None:
            return []
        failed = [step for step in chain.obstacles if step.code not in OF_GROUP]
        if not failed or all(step.code.startswith("held") for step in failed):
            failed += [step for step in chain.obstacles if step.code in OF_GROUP][:1]
        return [Obstacle(code=step.code, line=step.sentence) for step in failed]

    def reason(self, host: int) -> Reason:
        """Return the reason of a host without a lease of the task group: the first obstacle."""
        found = self.obstacles(host)
        if not found:
            return self._given(host)
        first = found[0]
        if first.code in OF_GROUP:
            busy = any(step.code == "busy" and not step.holds for step in self.chains[host].steps)
            line = f"{'could be taken' if busy else 'is free'}, but {first.line}{self._to_use_it()}"
            return Reason(first.code, line, False)
        return Reason("busy" if first.code.startswith("held") else first.code, first.line)

    def _given(self, host: int) -> Reason:
        match self.gains.get(host):
            case Offer():
                return Reason("free", "is free, and is offered to it in the next round", False)
            case EndLease():
                return Reason("busy", "is taken for it from another task group in the next round")
            case _:
                return Reason("free", "is free", False)

    def _to_use_it(self) -> str:
        """Return the smallest change if it is one of the task group: then it is about every such host."""
        if self.smallest is None or any(one.host is not None for one in self.smallest.changes):
            return ""
        return f"; to use it: {self.smallest.line}"


OF_GROUP = {
    *(code for code, predicate in BY_CODE.items() if predicate.scope is Scope.GROUP),
    *LEFT_OVER,
}
"""The codes of conditions that are not about the host."""
NOTHING_DECIDED = Decided({}, {}, None)


async def decided_reasons(store: Store, facts: Waiting, most_hosts: int | None = None) -> Decided:
    """Decide for the whole fleet, and return what this says about the hosts of a task group.

    ``most_hosts``: in a larger fleet, the smallest change is not looked for; each one tried is a decision.
    """
    fleet = await copied_fleet(store, facts.hosts, [facts.group])
    explained = await asyncio.to_thread(
        explain_group,
        fleet.snapshot,
        fleet.now,
        facts.group.number,
        [host.number for host in facts.hosts],
        changes=most_hosts is None or len(fleet.snapshot.hosts) <= most_hosts,
    )
    return Decided(
        {chain.host: chain for chain in explained.chains},
        {gain.host: gain for gain in explained.gets},
        explained.smallest,
    )


def reason_of_host(host: WaitingHost, facts: Waiting, decided: Decided) -> Reason:
    """Return what the host does for the group; else what the decision says about it."""
    if facts.lease_state(host) is not None or host.number not in decided.chains:
        return host_reason(host, facts)
    return decided.reason(host.number)

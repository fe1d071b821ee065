"""The speed of one scheduling decision for up to 10,000 hosts, beside a floor: `python -m bench.decide`.

The floor of a case is the least that any decision must do with the same answer: a list of as many actions,
each with its group and host. The targets are those of the requirement; a case over its target is marked.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from mitosis.contracts.allocation import CpuBinding, CpuBindingStrategy
from mitosis.scheduling.actions import EndLease, Offer, Rank, Renew
from mitosis.scheduling.decide import decide
from mitosis.scheduling.facts import Capacity, Group, Host, Lease, Progress, Work
from mitosis.scheduling.policy import Policy
from mitosis.scheduling.snapshot import Snapshot

NOW = 1_000_000.0
HOUR = 3600.0
RUNS = 5
USER_GROUPS = 8
EVERYTHING = Policy(actions_per_round=1_000_000)
"""Without the limit of one round, so that a case is decided whole."""
CAPPED = Policy()


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[[], Snapshot]
    target_ms: float | None = None


def fleet(hosts: int, policy: Policy = EVERYTHING, cores: int = 8) -> Snapshot:
    snapshot = Snapshot(policy)
    for number in range(hosts):
        snapshot.put_host(
            Host(
                number=number,
                name=f"h{number}",
                capacity=Capacity(1, cores),
                cores=tuple(range(cores)),
                serves=frozenset(range(USER_GROUPS)),
                last_contact_at=NOW,
            )
        )
    return snapshot


def put_groups(
    snapshot: Snapshot,
    count: int,
    *,
    ready: int,
    members: Callable[[int], int],
    demand: Callable[[int], Capacity] = lambda _: Capacity(),
    binding: CpuBinding | None = None,
) -> None:
    for number in range(count):
        group = Group(
            number=number,
            name=f"g{number}",
            user_group=number % USER_GROUPS,
            priority=number % 3,
            created_at=float(number),
            members=members(number),
            demand=demand(number),
            binding=binding,
        )
        snapshot.put_group(group, Work(ready=ready, unfinished=ready))


def put_leases(snapshot: Snapshot, hosts: Iterable[int], affinity_until: float) -> None:
    """Leases of one task group of the lowest priority, which has no more work than they do."""
    holder = Group(
        number=-1, name="holder", user_group=0, priority=-1, members=(1 << len(snapshot.hosts)) - 1
    )
    snapshot.put_group(holder, Work(unfinished=1))
    for number in hosts:
        snapshot.put_lease(
            Lease(
                number=number,
                group=-1,
                host=number,
                progress=Progress.FULL,
                affinity_until=affinity_until,
            )
        )


def every(hosts: int) -> Callable[[int], int]:
    return lambda _: (1 << hosts) - 1


def tagged(hosts: int, kinds: int = 16) -> Callable[[int], int]:
    """Every host has one of so many tags, and every task group asks for one."""
    sets = [sum(1 << n for n in range(kind, hosts, kinds)) for kind in range(kinds)]
    return lambda number: sets[number % kinds]


def own_list(hosts: int, size: int) -> Callable[[int], int]:
    """A list of hosts of its own for each task group: a window that wraps around."""
    window, whole = (1 << size) - 1, (1 << hosts) - 1

    def members(number: int) -> int:
        at = number * 7919 % hosts
        shifted = window << at
        return (shifted & whole) | (shifted >> hosts)

    return members


def waiting(hosts: int, groups: int, ready: int, members: Callable[[int], int]) -> Snapshot:
    snapshot = fleet(hosts)
    put_groups(snapshot, groups, ready=ready, members=members)
    return snapshot


def exclusive() -> Snapshot:
    snapshot = fleet(10_000, cores=64)
    binding = CpuBinding(strategy=CpuBindingStrategy.EXCLUSIVE)
    put_groups(snapshot, 200, ready=1, members=every(10_000), binding=binding)
    return snapshot


def demanding() -> Snapshot:
    snapshot = fleet(10_000)
    put_groups(
        snapshot,
        200,
        ready=1_000,
        members=tagged(10_000),
        demand=lambda number: Capacity(1, number % 8),
    )
    return snapshot


def leased(
    hosts: int,
    groups: int,
    ready: int,
    members: Callable[[int], int],
    *,
    contestable: bool,
    policy: Policy = EVERYTHING,
) -> Snapshot:
    snapshot = fleet(hosts, policy)
    put_leases(snapshot, range(hosts), NOW if contestable else NOW + HOUR)
    put_groups(snapshot, groups, ready=ready, members=members)
    return snapshot


def too_small() -> Snapshot:
    snapshot = fleet(1_000)
    put_groups(snapshot, 10_000, ready=1, members=every(1_000), demand=lambda _: Capacity(1, 99))
    return snapshot


CASES: Sequence[Case] = (
    Case("200 x 10,000, tags, one lease each", lambda: waiting(10_000, 200, 1, tagged(10_000)), 50),
    Case("200 x 10,000, exclusive plan on 64 cores, one lease each", exclusive, 50),
    Case("200 x 10,000, tags, all hosts", lambda: waiting(10_000, 200, 1_000, tagged(10_000)), 250),
    Case(
        "200 x 10,000, each host a tag of its own",
        lambda: waiting(10_000, 200, 1, lambda number: 1 << number),
        50,
    ),
    Case(
        "200 x 10,000, the same names, all hosts",
        lambda: waiting(10_000, 200, 1_000, every(10_000)),
        250,
    ),
    Case(
        "200 x 10,000, 5,000 names of their own, all hosts",
        lambda: waiting(10_000, 200, 1_000, own_list(10_000, 5_000)),
        250,
    ),
    Case("200 x 10,000, 8 demands, all hosts", demanding, 250),
    Case(
        "10,000 x 1,000, all leased, none contestable",
        lambda: leased(1_000, 10_000, 1, every(1_000), contestable=False),
        5,
    ),
    Case("10,000 x 1,000 free, none is large enough", too_small, 5),
    Case(
        "10,000 x 1,000, lists of 500, all leased, none contestable",
        lambda: leased(1_000, 10_000, 1, own_list(1_000, 500), contestable=False),
        5,
    ),
    Case(
        "10,000 x 1,000, lists of 500, all free",
        lambda: waiting(1_000, 10_000, 1, own_list(1_000, 500)),
    ),
    Case(
        "200 x 1,000 contestable, all taken",
        lambda: leased(1_000, 200, 100, every(1_000), contestable=True),
    ),
    Case(
        "10,000 lists of 500 x 1,000 contestable, all taken",
        lambda: leased(1_000, 10_000, 1, own_list(1_000, 500), contestable=True),
    ),
    Case(
        "200 x 10,000 contestable, all taken",
        lambda: leased(10_000, 200, 1_000, every(10_000), contestable=True),
    ),
    Case(
        "200 x 10,000 contestable, 1,000 in one round",
        lambda: leased(10_000, 200, 1_000, every(10_000), contestable=True, policy=CAPPED),
    ),
)


def measure(run: Callable[[], object]) -> tuple[float, float]:
    """Least and median milliseconds of CPU time."""
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        run()
        times.append((time.process_time() - start) * 1_000)
    return min(times), statistics.median(times)


def floor(actions: int) -> list[Offer]:
    return [Offer(number, number, Rank(0, 0, 0, 0.0, number)) for number in range(actions)]


def main() -> None:
    print("| case | built, ms | decide, ms (min / median) | floor, ms | offers, ends, renewals |")
    print("|---|---|---|---|---|")
    for case in CASES:
        start = time.process_time()
        snapshot = case.build()
        built = (time.process_time() - start) * 1_000
        actions = decide(snapshot, NOW)
        counts = [sum(isinstance(a, kind) for a in actions) for kind in (Offer, EndLease, Renew)]
        least, median = measure(partial(decide, snapshot, NOW))
        floor_ms, _ = measure(partial(floor, sum(counts)))
        late = case.target_ms is not None and least > case.target_ms
        mark = f" **over {case.target_ms:.0f}**" if late else ""
        result = ", ".join(f"{count:,}" for count in counts)
        print(
            f"| {case.name} | {built:.0f} | {least:.2f} / {median:.2f}{mark} | {floor_ms:.2f} | {result} |",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""What happens to tasks: they are submitted, begin on the workers of a lease, and end."""

from collections.abc import Callable

from mitosis.scheduling.costs import idle_threshold
from mitosis.scheduling.facts import Work
from mitosis.scheduling.simulation.accounts import Accounts
from mitosis.scheduling.simulation.entities import Run, SimGroup
from mitosis.scheduling.simulation.events import Events
from mitosis.scheduling.simulation.fact_writer import FactWriter
from mitosis.scheduling.simulation.workload import TasksRecord, durations


class TaskEvents:
    """Submits, begins and ends tasks."""

    def __init__(self, events: Events, facts: FactWriter, accounts: Accounts) -> None:
        self._events = events
        self._facts = facts
        self._accounts = accounts
        self._least_idle_seconds = idle_threshold(Work(), Work(), facts.snapshot.policy.leases)
        self.became_idle: Callable[[float], None] = lambda _: None
        """Called with the time from which on a lease that has become idle may be taken."""

    def submit(self, pair: tuple[SimGroup, TasksRecord]) -> None:
        """Make tasks ready, and begin as many as there are idle workers."""
        group, tasks = pair
        if not tasks.size:
            return
        group.parts.append(durations(tasks, group.number * 31 + group.submitted))
        group.submitted += tasks.size
        group.unfinished += tasks.size
        self._ready(group, tasks.size)

    def give_back(self, group: SimGroup, seconds: list[float]) -> None:
        """Make tasks ready again that were running on a lost host."""
        if seconds:
            group.parts.appendleft(iter(seconds))
            self._ready(group, len(seconds))

    def begin(self, run: Run) -> None:
        """Begin ready tasks on the idle workers of a lease, and note what it contributes now."""
        group = run.group
        if run.claims:
            for _ in range(min(run.workers - run.running, group.ready)):
                self._begin_one(run)
        has_work = run.running or group.ready or not run.is_prepared
        if has_work:
            run.idle_since = None
        elif run.idle_since is None:
            run.idle_since = self._events.now
            self.became_idle(self._events.now + self._least_idle_seconds)
        self._facts.progress(run)

    def next_begins(self, run: Run, seconds: float) -> bool:
        """End the task of the first event, and begin the next one in its place.

        That is what nearly all events are. False: no task can begin, and nothing was done.
        """
        group = run.group
        if not group.ready or not run.claims:
            return False
        self._count(run, seconds)
        group.ready -= 1
        seconds = group.next_seconds()
        self._events.replace_first(self._events.now + seconds, run, seconds)
        if group.is_watched or not group.ready:
            self._facts.touched.add(group)
        return True

    def ended(self, run: Run, seconds: float) -> None:
        """End a task after which none begins."""
        self._count(run, seconds)
        run.running -= 1

    def _count(self, run: Run, seconds: float) -> None:
        group = run.group
        group.ended += 1
        group.task_seconds += seconds
        group.unfinished -= 1
        self._accounts.worked_seconds += seconds / run.workers
        if group.ended >= group.measured_at:
            self._facts.touched.add(group)
            self._facts.changed |= group.ready > 0

    def _begin_one(self, run: Run) -> None:
        group = run.group
        group.ready -= 1
        run.running += 1
        seconds = group.next_seconds()
        self._events.at(self._events.now + seconds, run, seconds)
        if group.is_watched or not group.ready:
            self._facts.touched.add(group)

    def _ready(self, group: SimGroup, count: int) -> None:
        group.ready += count
        if group.first_ready_at is None:
            group.first_ready_at = self._events.now
        self._facts.touched.add(group)
        for run in sorted(group.runs, key=lambda run: run.number):
            self.begin(run)
        self._facts.changed |= group.ready > 0

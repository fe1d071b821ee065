"""Every setup that started is torn down once, before another group begins there (protocol P5, P8, P9).

Random sequences of verbs, failures and steps over the real store; :mod:`tests.support.debts` has the rules.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import psycopg
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.campaigns import world
from tests.support.debts import Debts
from tests.support.examples import examples

EXAMPLES = examples(4)
VERBS = ("submit", "close", "reopen", "cancel", "let finish", "force", "retry", "delete")
OF_HOST = (
    "kill",
    "stop",
    "start",
    "reboot",
    "cut",
    "mend",
    "deafen",
    "hear",
    "lapse",
    "renew",
    "take",
    "clean",
)
OF_WORK = ("setup", "setup fails", "hook", "claim", "finish", "fail")
CONTROL = ("round", "chunk", "interrupted chunk", "lose answer", "month")

Step = tuple[str, int]
STEPS = st.one_of(
    st.tuples(st.sampled_from(VERBS), st.integers(0, 1)),
    st.tuples(st.sampled_from(("workflow", *OF_HOST)), st.integers(0, 1)),
    st.tuples(st.sampled_from(("renew", *OF_WORK)), st.integers(0, 1)),
    st.tuples(st.sampled_from(CONTROL), st.just(0)),
)
WORK: Sequence[Step] = [("submit", 0), ("round", 0), ("take", 0), ("setup", 0), ("claim", 0)]
END: Sequence[Step] = [("cancel", 0), ("lapse", 0), ("workflow", 0), ("delete", 0), ("chunk", 0)]
DONE: Sequence[Step] = [("finish", 0), ("close", 0), ("workflow", 0), ("renew", 0), ("renew", 0)]
BACK: Sequence[Step] = [("kill", 0), ("lose answer", 0), ("start", 0)]
"""Its teardown has been begun, and is owed."""
SEQUENCES = st.builds(
    lambda begun, steps: [*begun, *steps],
    st.sampled_from([WORK, [*WORK, *END], [("submit", 1), *WORK], []]),
    st.lists(STEPS, min_size=8, max_size=24),
)


def action(it: Debts, step: Step) -> Callable[[], Awaitable[None]]:  # noqa: C901, PLR0911, PLR0912
    name, place = step
    where = it.hosts[place]

    async def set_host(**values: bool) -> None:
        for field, value in values.items():
            setattr(where, field, value)

    match name:
        case "cut":
            return lambda: set_host(cut=True)
        case "mend":
            return lambda: set_host(cut=False)
        case "deafen":
            return lambda: set_host(deaf=True)
        case "hear":
            return lambda: set_host(deaf=False)
        case "setup":
            return lambda: where.setup_ends(well=True)
        case "setup fails":
            return lambda: where.setup_ends(well=False)
        case "hook":
            return where.hook_ends
        case "finish":
            return lambda: where.finish(well=True)
        case "fail":
            return lambda: where.finish(well=False)
        case "workflow":
            return lambda: it.workflow(place)
        case "round":
            return it.round
        case "month":
            return it.month
        case "chunk":
            return it.chunk
        case "interrupted chunk":
            return it.interrupted_chunk
        case "lose answer":
            return it.lose_next_answer
        case _ if name in VERBS:
            return lambda: it.verb(name, place)
        case _:
            method: Callable[[], Awaitable[None]] = getattr(where, name)
            return method


async def run(url: str, steps: Sequence[Step]) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "TRUNCATE task_groups, managers, users, task, open_task, task_result,"
            " task_failures, submission, task_retries, outbox, deleted_groups CASCADE"
        )
    async with world(url) as w:
        it = Debts(w, url=url)
        await it.begin()
        for step in steps:
            await it.step(action(it, step))
        await it.heal()
        await it.emptied()


@settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example([*WORK, *DONE, *BACK, ("workflow", 0), ("renew", 0), ("hook", 0)])
@example([*WORK, *DONE, *BACK, ("workflow", 0), ("stop", 0)])
@example([*WORK, ("kill", 0), *END, ("start", 0), ("submit", 0), ("round", 0), ("take", 0)])
@example(
    [*WORK, ("kill", 0), *END, ("month", 0), ("start", 0), ("hook", 0), ("submit", 0), ("round", 0)]
)
@example([*WORK, ("cut", 0), *END, ("mend", 0), ("renew", 0), ("renew", 0)])
@example([*WORK, ("deafen", 0), ("finish", 0), ("close", 0), ("workflow", 0), ("renew", 0)])
@example([*WORK[:2], ("lose answer", 0), ("take", 0), ("deafen", 0), ("renew", 0), ("setup", 0)])
@example([*WORK, ("reboot", 0), ("start", 0), ("kill", 0), ("start", 0), ("hook", 0)])
@example(
    [
        *WORK,
        *[
            ("finish", 0),
            ("close", 0),
            ("workflow", 0),
            ("renew", 0),
            ("renew", 0),
            ("workflow", 0),
        ],
        *[("kill", 0), ("lapse", 0)],
    ]
)
@example(
    [
        *[("submit", 0), ("round", 0), ("lose answer", 0), ("take", 0), ("cancel", 0)],
        *[("workflow", 0), ("renew", 0), ("renew", 0), ("renew", 1)],
    ]
)
@given(SEQUENCES)
def test_no_sequence_leaves_a_dirty_host_or_a_sleeping_group(
    database: str, steps: list[Step]
) -> None:
    asyncio.run(run(database, steps))

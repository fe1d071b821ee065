"""Random job definitions that are valid, as the fields a user writes."""

from typing import Any

from hypothesis import strategies as st

PARAMETERS: dict[str, dict[str, Any]] = {
    "date": {"description": "Nominal date"},
    "n": {"type": "integer", "default": 3},
    "files": {"type": "list", "default": ["a b", 1, None]},
    "opt": {"type": "object", "default": {"x": [1, True], "": "y"}},
    "maybe": {"type": "string", "required": False},
    "level": {"choices": ["low", "high"], "default": "low"},
}
GROUPS: dict[str, dict[str, Any]] = {
    "gpu": {
        "tags": ["b", "a"],
        "plan": {"worker_count": 2},
        "setup": {"command": ["prep", "{{ run.id }}"]},
    },
    "shared": {"standing": "team/pool"},
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0{"), max_size=8)
WORDS = st.one_of(
    TEXTS,
    st.sampled_from(
        ["{{ params.date }}", "--n={{ params.n }}", "{{ params.files }}", "{{ params.maybe }}"]
    ),
    st.just("{{ task.index }}/{{ task.count }}"),
)
DURATIONS = st.one_of(st.integers(1, 10**6), st.sampled_from(["10m", "1h30m", "0.5s"]))
SIZES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.integers(0, 6).map(lambda n: {"count": n}),
    st.just({"count": "{{ params.n }}"}),
    st.just({"over": "params.files"}),
    st.lists(st.one_of(TEXTS, st.integers(), st.booleans()), max_size=4).map(lambda i: {"over": i}),
)

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        WORDS,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)
ARGUMENTS = st.one_of(st.lists(JSON, max_size=3), st.dictionaries(TEXTS, JSON, max_size=3))
WHAT_TO_RUN: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.lists(WORDS, max_size=3).map(lambda words: {"command": ["run", *words]}),
    ARGUMENTS.map(lambda given: {"handler": "shop.jobs:measure", "arguments": given}),
    ARGUMENTS.map(lambda given: {"named_task": "shop/resize@1.0", "arguments": given}),
)
FURTHER: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "description": TEXTS,
        "environment": st.dictionaries(st.sampled_from(["A", "B_2"]), TEXTS, max_size=2),
        "working_directory": st.just("/data/{{ params.date }}"),
        "priority": st.integers(-5, 5),
        "retry": st.just({"max_attempts": 3, "exit_codes": [75], "delay": "10s"}),
        "task_timeout": DURATIONS,
        "timeout": DURATIONS,
        "kill_grace_seconds": st.sampled_from([0, 1.5]),
        "max_failures": st.sampled_from([0, "10%"]),
        "executor": st.just("container"),
        "group": st.just("gpu"),
    },
)


@st.composite
def jobs(draw: st.DrawFn, *, most: int = 6, rich: bool = True) -> dict[str, Any]:
    """Return the fields of a job of up to ``most`` steps; ``rich``: with all kinds of further fields."""
    names = draw(st.permutations([f"step-{n}" for n in range(draw(st.integers(1, most)))]))
    steps: dict[str, Any] = {}
    for at, name in enumerate(names):
        steps[name] = draw(_step(list(names[:at]), steps, rich=rich))
    order = draw(st.permutations(list(steps)))
    job: dict[str, Any] = {"name": "job", "steps": {name: steps[name] for name in order}}
    job["parameters"], job["groups"] = PARAMETERS, GROUPS
    if rich:
        job |= draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "description": TEXTS,
                    "timeout": DURATIONS,
                    "max_failures": st.one_of(st.integers(0, 9), st.just("5 %")),
                    "max_concurrent_tasks": st.integers(1, 99),
                    "max_concurrent_runs": st.integers(1, 9),
                    "labels": st.just(["b", "a"]),
                },
            )
        )
    return job


@st.composite
def _step(
    draw: st.DrawFn, earlier: list[str], steps: dict[str, Any], *, rich: bool
) -> dict[str, Any]:
    step: dict[str, Any] = draw(WHAT_TO_RUN)
    before: list[str] = []
    if earlier:
        before = draw(st.lists(st.sampled_from(earlier), max_size=3, unique=True))
    after = {name: draw(st.sampled_from(["success", "failure", "always"])) for name in before}
    arrays = [name for name in before if _is_array(steps[name], steps)]
    one_by_one, as_list, conditional = (draw(st.booleans()) for _ in range(3))
    if arrays and one_by_one:
        after[arrays[0]] = "each"
    else:
        step |= draw(SIZES)
    if after:
        simple = set(after.values()) == {"success"}
        step["after"] = list(after) if simple and as_list else after
    ended = [name for name, outcome in after.items() if outcome != "each"]
    if ended and conditional:
        step["when"] = f"results.{ended[0]} != null or params.n > {draw(st.integers(0, 5))}"
    return step | (draw(FURTHER) if rich else {})


def _is_array(step: dict[str, Any], steps: dict[str, Any]) -> bool:
    after = step.get("after", {})
    each = isinstance(after, dict) and "each" in after.values()
    return "count" in step or "over" in step or each


def shuffled(value: Any, random: Any) -> Any:
    """The same JSON value with its keys in another order."""
    if isinstance(value, list):
        return [shuffled(one, random) for one in value]
    if not isinstance(value, dict):
        return value
    items = list(value.items())
    random.shuffle(items)
    return {key: shuffled(one, random) for key, one in items}

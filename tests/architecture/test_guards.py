"""The guards of `make mutate` stand where its table says: a guard that has moved would survive unseen."""

import tomllib

from tests.support.checkout import ROOT

GUARDS: list[dict[str, str]] = tomllib.loads((ROOT / "tools/mutate/guards.toml").read_text())[
    "guard"
]


def faults(guard: dict[str, str]) -> list[str]:
    count = (ROOT / guard["path"]).read_text().count(guard["text"])
    files = guard["tests"].split(" -k ")[0].split()
    missing = [f"{file} does not exist" for file in files if not (ROOT / file).exists()]
    return [f"stands {count} times in {guard['path']}", *missing] if count != 1 else missing


def test_a_guard_stands_once_in_its_file_and_its_tests_exist() -> None:
    found = {guard["name"]: faults(guard) for guard in GUARDS}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_names_of_guards_are_distinct() -> None:
    names = [guard["name"] for guard in GUARDS]
    assert sorted(set(names)) == sorted(names)
    assert len(names) >= 60

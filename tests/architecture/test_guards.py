"""The guards of `make mutate` stand where its table says: a guard that has moved would survive unseen."""

import tomllib

import pytest

from tests.support.checkout import ROOT

GUARDS: list[dict[str, str]] = tomllib.loads((ROOT / "tools/mutate/guards.toml").read_text())[
    "guard"
]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard["name"])
def test_a_guard_stands_once_in_its_file_and_its_tests_exist(guard: dict[str, str]) -> None:
    assert (ROOT / guard["path"]).read_text().count(guard["text"]) == 1
    files = guard["tests"].split(" -k ")[0].split()
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_names_of_guards_are_distinct() -> None:
    names = [guard["name"] for guard in GUARDS]
    assert sorted(set(names)) == sorted(names)
    assert len(names) >= 60

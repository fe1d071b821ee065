"""Executors are found by kind, and what is wrong with one is said with its remedy."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mitosis.contracts.errors import ConfigurationError, InvalidRequest
from mitosis.executors.registry import find_executor, known_kinds
from mitosis.worker_service.discovery import Discovery, Sources

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package with these entry points of executors."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def installed(name: str, points: str) -> None:
        package = tmp_path / f"{name}-1.dist-info"
        package.mkdir()
        (package / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (package / "entry_points.txt").write_text(f"[mitosis.executors]\n{points}\n")

    return installed


def test_an_unknown_kind_names_the_known_ones(install: Install) -> None:
    install("shelf", "shelf = shop:Kind")
    with pytest.raises(InvalidRequest, match=r"no executor 'contianer'.*container.*shelf") as error:
        find_executor("contianer")
    assert error.value.facts["field"] == "executor"
    assert {"command", "container", "handler", "shelf"} <= set(known_kinds())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("no_such_module:Kind", "No module named 'no_such_module'"),
        ("collections:NoSuch", "NoSuch"),
        ("collections:OrderedDict", "has no check, start, make, close"),
    ],
)
def test_a_package_that_does_not_work_is_named(install: Install, value: str, said: str) -> None:
    install("shelf", f"shelf = {value}")
    with pytest.raises(ConfigurationError) as error:
        find_executor("shelf")
    assert f"shelf = {value}" in error.value.message
    assert said in error.value.message


def test_two_packages_with_one_kind_are_both_named(install: Install) -> None:
    install("one", "shelf = one:Kind")
    install("two", "shelf = two:Kind")
    with pytest.raises(ConfigurationError, match="one:Kind and two:Kind"):
        find_executor("shelf")


def test_where_one_task_has_an_executor_handlers_and_commands_have_theirs(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "namespace_name: images\nname: a\ncommand: [sh]\nexecutor: command\n"
    )
    tasks = ("images/b@1=json:dumps", "images/c@1")
    found = Discovery(Sources(folder="/", tasks=tasks, command=("sh",), files=tmp_path))
    kinds = {target.name.name: target.executor for target in found.targets}
    assert kinds == {"a": "command", "b": "handler", "c": "command"}
    plain = Discovery(Sources(folder="/", tasks=tasks, command=("sh",)))
    assert [target.executor for target in plain.targets] == [None, None]
    assert not plain.executors


@pytest.mark.parametrize(
    ("tasks", "executor", "said"),
    [
        (("images/a@1",), "handler", "executor handler of images/a@1 needs a handler"),
        (("images/a@1",), "command", "nothing executes images/a@1"),
    ],
)
def test_what_an_executor_lacks_is_said(tasks: tuple[str, ...], executor: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        Discovery(Sources(folder="/", tasks=tasks, executor=executor))


def test_a_wrong_configuration_names_the_task_and_the_field() -> None:
    with pytest.raises(
        ConfigurationError, match=r"images/a@1 by the executor command: configuration.memory_mb"
    ):
        Discovery(
            Sources(
                folder="/",
                tasks=("images/a@1",),
                command=("sh",),
                executor="command",
                configuration={"memory_mb": "much"},
            )
        )

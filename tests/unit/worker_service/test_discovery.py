"""What a worker service executes: options, decorated handlers, entry points, files."""

import importlib
import os
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from mitosis.contracts.errors import ConfigurationError, InvalidRequest
from mitosis.worker_service import discovery as module
from mitosis.worker_service import task_files
from mitosis.worker_service.discovery import Discovery, Sources
from mitosis.worker_service.task_files import read_task_files

SHOP = """
from mitosis import handler

@handler(named_task="images/resize@1.4.0", timeout=60)
def resize(file): ...

@handler(named_task="images/rotate@2")
async def rotate(file): ...

@handler
def other(): ...
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test imports a module of its own."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("shop", None)
    importlib.invalidate_caches()


def found(folder: Path, **fields: Any) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    targets = Discovery(Sources(folder=str(folder), **fields)).targets
    return {
        f"{one.name.namespace}/{one.name.name}@{one.name.version}": (one.handler, one.command)
        for one in targets
    }


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_decorated_handlers_of_a_module(tmp_path: Path) -> None:
    write(tmp_path / "shop.py", SHOP)
    assert found(tmp_path, modules=("shop",)) == {
        "images/resize@1.4.0": ("shop:resize", ()),
        "images/rotate@2": ("shop:rotate", ()),
    }


def test_handlers_of_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "shop.py", SHOP)
    points = [
        EntryPoint("all", "shop", module.ENTRY_POINTS),
        EntryPoint("one", "shop:resize", module.ENTRY_POINTS),
    ]
    monkeypatch.setattr(module, "entry_points", lambda group: points)
    assert set(found(tmp_path, entry_points=True)) == {"images/resize@1.4.0", "images/rotate@2"}
    points.append(EntryPoint("gone", "shop:no_such", module.ENTRY_POINTS))
    with pytest.raises(InvalidRequest, match="cannot load the entry point gone = shop:no_such"):
        found(tmp_path, entry_points=True)


def test_files_name_handlers_commands_and_configurations(tmp_path: Path) -> None:
    write(tmp_path / "shop.py", SHOP)
    write(
        tmp_path / "config/images/resize.yaml",
        "namespace_name: images\nname: resize\nversion: 1.4.0\nconfiguration: {size: 300}\npriority: 7\n",
    )
    write(
        tmp_path / "config/list.yml",
        "namespace_name: files\nname: list\ncommand: [sh, -c, 'ls']\nmax_concurrent: 2\n",
    )
    sources = Sources(folder=str(tmp_path), modules=("shop",), files=tmp_path / "config")
    targets = {one.name.name: one for one in Discovery(sources).targets}
    assert targets["resize"].handler == "shop:resize"
    assert targets["resize"].supported.configuration == {"size": 300}
    assert targets["resize"].supported.priority == 7
    assert targets["rotate"].supported.configuration == {}
    assert targets["list"].command[1:] == ("-c", "ls")
    assert (targets["list"].name.version, targets["list"].supported.max_concurrent) == ("1.0.0", 2)


@pytest.mark.spec("S004-40")
def test_a_task_without_a_file_has_the_configuration_of_the_options_or_an_empty_one(
    tmp_path: Path,
) -> None:
    write(tmp_path / "shop.py", SHOP)
    sources = Sources(folder=str(tmp_path), modules=("shop",), files=tmp_path / "config")
    assert {str(one.supported.configuration) for one in Discovery(sources).targets} == {"{}"}
    sources = Sources(folder=str(tmp_path), modules=("shop",), configuration={"a": 1})
    assert {str(one.supported.configuration) for one in Discovery(sources).targets} == {"{'a': 1}"}


def test_a_changed_file_changes_the_configuration_and_a_wrong_one_nothing(tmp_path: Path) -> None:
    write(tmp_path / "shop.py", SHOP)
    file = write(
        tmp_path / "config/resize.yaml",
        "namespace_name: images\nname: resize\nversion: 1.4.0\nconfiguration: {size: 300}\n",
    )
    sources = Sources(folder=str(tmp_path), modules=("shop",), files=tmp_path / "config")
    it = Discovery(sources)
    assert not it.changed()
    file.write_text(file.read_text().replace("300", "1024"))
    assert it.changed()
    sizes = [one.supported.configuration.get("size") for one in it.targets]
    assert sorted(sizes, key=str) == [1024, None]
    assert not it.changed()
    file.write_text("namespace_name: images\nname: resize\nversion: 1.4.0\nconfiguration: [1, 2]\n")
    with pytest.raises(ConfigurationError, match=r"resize\.yaml: configuration"):
        it.changed()
    assert not it.changed()
    assert [one.supported.configuration.get("size") for one in it.targets] == sizes


RESIZE = "namespace_name: images\nname: resize\nversion: 1.4.0\nconfiguration: {size: %s}\n"


@pytest.mark.parametrize("way", ["date", "gone", "not readable"])
def test_what_cannot_be_read_changes_nothing_and_counts_once_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    write(tmp_path / "shop.py", SHOP)
    folder = tmp_path / "config"
    file = write(folder / "resize.yaml", RESIZE % 300)
    it = Discovery(Sources(folder=str(tmp_path), modules=("shop",), files=folder))
    kept = list(it.targets)
    with monkeypatch.context() as patch:
        match way:
            case "date":
                file.write_text(RESIZE % "2026-02-30")
            case "gone":
                folder.rename(tmp_path / "elsewhere")
            case "not readable":
                file.write_text(RESIZE % 1024)
                patch.setattr(task_files, "read_bounded", unreadable)
        with pytest.raises(ConfigurationError, match=str(folder)):
            it.changed()
        assert it.targets == kept
    if way == "gone":
        (tmp_path / "elsewhere").rename(folder)
    if way != "not readable":
        file.write_text(RESIZE % 1024)
    assert it.changed()
    assert [t.supported.configuration for t in it.targets] == [{"size": 1024}, {}]


def unreadable(path: Path, most: int) -> bytes:
    raise PermissionError(13, "Permission denied", str(path))


def test_a_task_whose_file_is_gone_is_supported_only_if_something_else_names_it(
    tmp_path: Path,
) -> None:
    write(tmp_path / "shop.py", SHOP)
    folder = tmp_path / "config"
    of_file = RESIZE.replace("resize", "fold") + "handler: shop:resize\n"
    resize, fold = write(folder / "a.yaml", RESIZE % 300), write(folder / "b.yaml", of_file % 9)
    it = Discovery(
        Sources(folder=str(tmp_path), tasks=("images/resize@1.4.0=shop:resize",), files=folder)
    )

    def configurations() -> dict[str, object]:
        return {t.supported.name: t.supported.configuration for t in it.targets}

    assert configurations() == {"resize": {"size": 300}, "fold": {"size": 9}}
    fold.unlink()
    assert it.changed()
    assert configurations() == {"resize": {"size": 300}}
    fold.write_text(of_file % 10)
    assert it.changed()
    assert configurations() == {"resize": {"size": 300}, "fold": {"size": 10}}
    resize.unlink()
    assert it.changed()
    assert configurations() == {"resize": {}, "fold": {"size": 10}}


def test_the_last_named_task_stays_when_its_file_is_gone(tmp_path: Path) -> None:
    write(tmp_path / "shop.py", SHOP)
    file = write(tmp_path / "config/a.yaml", RESIZE % 300 + "handler: shop:resize\n")
    it = Discovery(Sources(folder=str(tmp_path), files=file.parent))
    kept = list(it.targets)
    file.unlink()
    with pytest.raises(ConfigurationError, match="no file of a named task is left"):
        it.changed()
    assert it.targets == kept
    assert not it.changed(), "until the folder changes again"


def test_a_refused_change_is_taken_back_and_its_files_are_named(tmp_path: Path) -> None:
    write(tmp_path / "shop.py", SHOP)
    file = write(tmp_path / "config/resize.yaml", RESIZE % 300)
    it = Discovery(Sources(folder=str(tmp_path), modules=("shop",), files=tmp_path / "config"))
    kept = list(it.targets)
    file.write_text(RESIZE % 1024)
    assert it.changed()
    assert it.take_back() == [str(file)]
    assert it.targets == kept
    assert not it.changed(), "until the file changes again"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "no named task was found"),
        ({"tasks": ("images/resize@1",)}, "nothing executes images/resize@1"),
        ({"tasks": ("a/b@1=shop:other", "a/b@1=shop:resize")}, "a/b@1 has two handlers"),
        ({"modules": ("no_such_module",)}, "cannot import no_such_module"),
        ({"modules": ("json",)}, "json has no function with @mitosis.handler"),
        ({"tasks": ("a/b@1",), "command": ("./no-such",)}, "no executable program './no-such'"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    write(tmp_path / "shop.py", SHOP)
    with pytest.raises(InvalidRequest, match=why):
        found(tmp_path, **fields)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- 1", "must have the fields of one named task"),
        ("name: [", "while parsing"),
        ("name: 2026-02-30", "day is out of range"),
        ("[" * 1000, "deep"),
        ("namespace_name: images", "name this field is required"),
        ("namespace_name: a\nname: b\nversion: 1.4", "version"),
        ("namespace_name: a\nname: b\nhandler: shop", "handler"),
        ("namespace_name: a\nname: b\nhandler: s:f\ncommand: [ls]", "give handler or command"),
        ("namespace_name: a\nname: b\ncolour: red", "colour unknown field"),
    ],
)
def test_a_wrong_file_is_named_with_its_field(tmp_path: Path, text: str, why: str) -> None:
    write(tmp_path / "config/x.yaml", text)
    with pytest.raises(ConfigurationError, match=rf"x\.yaml.*{why}"):
        found(tmp_path, files=tmp_path / "config")


def test_what_is_no_regular_file_is_named_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ConfigurationError, match=r"pipe\.yaml is not a regular file"):
        read_task_files(tmp_path)


def test_two_files_of_one_task_are_refused(tmp_path: Path) -> None:
    for name in ("x", "y"):
        write(tmp_path / f"config/{name}.yaml", "namespace_name: a\nname: b\nhandler: shop:other\n")
    with pytest.raises(ConfigurationError, match=r"both have a/b@1\.0\.0"):
        found(tmp_path, files=tmp_path / "config")


def test_files_of_named_tasks_are_bounded_in_number_and_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.yaml", f"namespace_name: images\nname: t{number}\n")
    monkeypatch.setattr(task_files, "MOST_FILES", 2)
    with pytest.raises(ConfigurationError, match=f"{tmp_path} has more than 2 files"):
        read_task_files(tmp_path)
    monkeypatch.setattr(task_files, "MOST_FILES", 3)
    monkeypatch.setattr(task_files, "MOST_BYTES_TOGETHER", 70)
    with pytest.raises(ConfigurationError, match=r"more than 70 bytes: .*/2\.yaml is one too many"):
        read_task_files(tmp_path)


def test_a_file_that_becomes_too_large_leaves_the_targets_and_is_refused_once(
    tmp_path: Path,
) -> None:
    file = write(tmp_path / "a.yaml", "namespace_name: images\nname: a\ncommand: ['true']\n")
    service = Discovery(Sources(folder=str(tmp_path), files=tmp_path))
    before = service.targets
    file.write_text("a" * (task_files.MOST_BYTES + 1))
    with pytest.raises(ConfigurationError, match=rf"{file}: it has more than 100000 bytes"):
        service.changed()
    assert not service.changed(), "not read again before it changes"
    assert service.targets == before


TENFOLD = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 7)]


@pytest.mark.parametrize("lines", [["a: &a [x, *a]"], ["l0: &l0 [x]", *TENFOLD]])
def test_aliases_do_not_make_a_small_file_large(tmp_path: Path, lines: list[str]) -> None:
    """A value that contains itself, and one of 10^6 values: each more line would make it ten times larger."""
    text = "".join(f"  {line}\n" for line in lines)
    write(tmp_path / "a.yaml", f"namespace_name: images\nname: a\nconfiguration:\n{text}")
    with pytest.raises(ConfigurationError, match=r"a\.yaml: with its aliases it has more than"):
        read_task_files(tmp_path)

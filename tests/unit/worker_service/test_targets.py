"""The options that say what a worker service executes."""

from pathlib import Path

import pytest

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.named_tasks import TaskName
from mitosis.contracts.worker_services import SupportedTask
from mitosis.worker_service.handlers import find_handlers
from mitosis.worker_service.targets import Target, by_name, existing_program, parse_task

NAME = TaskName("images", "resize", "1.4.0")


def test_a_task_has_a_handler_or_none() -> None:
    assert parse_task("images/resize@1.4.0=shop.images:Resizer.run") == (
        NAME,
        "shop.images:Resizer.run",
    )
    assert parse_task("images/resize@1.4.0") == (NAME, None)


@pytest.mark.parametrize(
    "text",
    ["resize", "images/resize@latest", "images/resize@1=", "images/resize@1=shop", "a/b@1=x-y:z"],
)
def test_anything_else_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(InvalidRequest, match="must") as refused:
        parse_task(text)
    assert refused.value.facts["field"] == "task"


def test_a_named_task_has_one_target() -> None:
    target = Target(SupportedTask.model_validate(NAME._asdict()), handler="shop:resize")
    assert by_name([target]) == {NAME: target}
    with pytest.raises(InvalidRequest, match=r"images/resize@1\.4\.0 is given twice"):
        by_name([target, target])
    with pytest.raises(InvalidRequest, match="at least one"):
        by_name([])


def test_a_program_is_found_in_the_folder_of_the_service_or_in_the_path(tmp_path: Path) -> None:
    program = tmp_path / "resize.sh"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(InvalidRequest, match=r"no executable program './resize\.sh'"):
        existing_program(["./resize.sh"], str(tmp_path))
    program.chmod(0o700)
    found = existing_program(["./resize.sh", "--fast"], str(tmp_path))
    assert program.samefile(found[0])
    assert found[1:] == ("--fast",)
    assert existing_program(["sh"], str(tmp_path))[0].endswith("/sh")
    with pytest.raises(InvalidRequest, match="must name a program"):
        existing_program([], str(tmp_path))


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        ("tests.support.no_such_module:run", "cannot import tests.support.no_such_module"),
        ("tests.support.broken_module:run", "cannot import tests.support.broken_module"),
        ("tests.support.sample_handlers:no_such", "has no no_such"),
        ("tests.support.sample_handlers:__name__", "is no function"),
    ],
)
def test_a_wrong_handler_is_refused_before_it_takes_tasks(handler: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        find_handlers([handler], ())

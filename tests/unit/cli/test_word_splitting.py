"""Reading tasks from a file: the words that a shell would see."""

import shlex
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.cli.group.submit import tasks_from
from mitosis.cli.group.submit_options import TaskSources
from mitosis.cli.word_splitting import words_of
from mitosis.contracts.task import TaskSpec

WITHOUT_COMMENTS = st.text(st.sampled_from("ab \t\r'\"\\$\x0b\u2003é"), max_size=12)


@given(WITHOUT_COMMENTS)
def test_words_are_those_of_shlex(line: str) -> None:
    try:
        expected = shlex.split(line)
    except ValueError:
        with pytest.raises(ValueError, match="No "):
            words_of(line)
    else:
        assert words_of(line) == expected


def read(path: Path, content: str) -> list[list[str] | None]:
    path.write_text(content, newline="")
    sources = TaskSources(command_file=path)
    tasks = [msgspec.json.decode(task, type=TaskSpec) for task in tasks_from(sources, {})]
    return [task.command for task in tasks]


def test_a_line_is_what_ends_with_a_newline(tmp_path: Path) -> None:
    """Form feeds and line separators are letters like others inside quotes."""
    content = "echo 'a\x0cb\u2028c'\r\n\n  # comment\necho $HOME # no shell\n"
    assert read(tmp_path / "commands", content) == [["echo", "a\x0cb\u2028c"], ["echo", "$HOME"]]

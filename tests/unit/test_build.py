"""Builds: what tells versions of control workers apart, and which of them is the newest."""

from pathlib import Path

import pytest

from mitosis.build import build_id, digest, newest
from mitosis.version import __version__


def test_a_build_names_release_schema_and_code() -> None:
    release, schema, code = build_id("0012b").split("-")
    assert (release, schema, len(code)) == (__version__, "0012b", 10)
    assert build_id("0013") != build_id("0012b")


def test_each_change_of_a_file_or_a_name_is_another_build(tmp_path: Path) -> None:
    (one := tmp_path / "one.py").write_text("a = 1\n")
    before = digest([one])
    one.write_text("a = 2\n")
    changed = digest([one])
    renamed = digest([one.rename(tmp_path / "two.py")])
    assert len({before, changed, renamed, digest([])}) == 4


@pytest.mark.parametrize(
    ("builds", "latest"),
    [
        (["0.2.0-0013-a", "0.1.0-0014-b"], "0.2.0-0013-a"),
        (["0.10.0-0013-a", "0.9.0-0013-b"], "0.10.0-0013-a"),
        (["0.1.0-0013-a", "0.1.0-0012b-b"], "0.1.0-0013-a"),
        (["0.1.0-0013-b", "0.1.0-0013-a"], "0.1.0-0013-a"),
        (["0.1.0-0013-a", "made by hand"], "0.1.0-0013-a"),
        (["0.1.0rc1-0013-a"], "0.1.0rc1-0013-a"),
    ],
    ids=["release", "not as text", "schema", "last start", "unknown form", "alone"],
)
def test_the_newest_build_is_of_the_latest_release_then_schema_then_start(
    builds: list[str], latest: str
) -> None:
    assert newest(builds) == latest

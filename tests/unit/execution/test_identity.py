"""The incarnation that a process keeps, and how it keeps files."""

from pathlib import Path

import pytest

from mitosis.contracts.errors import ConfigurationError
from mitosis.execution.identity import (
    keep_incarnation,
    raise_incarnation,
    read_incarnation,
    write_durably,
)


def test_the_incarnation_rises_and_is_kept(tmp_path: Path) -> None:
    assert read_incarnation(tmp_path) == 0
    assert [raise_incarnation(tmp_path) for _ in range(3)] == [1, 2, 3]
    keep_incarnation(tmp_path, 40)  # after a take-over it continues from PostgreSQL's value
    assert raise_incarnation(tmp_path) == 41


def test_an_edited_incarnation_is_refused(tmp_path: Path) -> None:
    (tmp_path / "incarnation").write_text("many")
    with pytest.raises(ConfigurationError, match="does not hold a number"):
        raise_incarnation(tmp_path)


def test_a_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_durably(path, b"one")
    write_durably(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]

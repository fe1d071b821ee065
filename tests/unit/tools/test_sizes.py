"""The size report: what it counts, and what makes it fail."""

from pathlib import Path

import pytest

from tools import sizes

LONG_FUNCTION = "def long():\n" + "    pass\n" * sizes.MAX_FUNCTION_LINES
NESTED = "class A:\n    def outer(self):\n        def inner():\n            pass\n        inner()\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sizes, "REASONS", {})
    (tmp_path / "api").mkdir()
    return tmp_path


def lengths(tree: Path) -> dict[str, int]:
    measured = sizes.measure(tree, "api")
    return {size.name: size.lines for size in (*measured.files, *measured.functions)}


def test_functions_within_classes_and_functions_are_counted(tree: Path) -> None:
    (tree / "api" / "a.py").write_text(NESTED)
    assert lengths(tree) == {"api/a.py": 5, "api/a.py:A.outer": 4, "api/a.py:A.outer.inner": 2}


def test_short_code_passes_and_shows_its_spread(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "api" / "a.py").write_text(NESTED)
    assert sizes.main(tree) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == (
        ["api", "1", "5", *["5", "/", "5", "/", "5"], *["3", "/", "4", "/", "4"]]
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (LONG_FUNCTION, "api/a.py:long"),
        ("x = 1\n" * (sizes.MAX_FILE_LINES + 1), "api/a.py"),
    ],
)
def test_what_is_too_long_fails_without_a_reason(
    tree: Path,
    text: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tree / "api" / "a.py").write_text(text)
    assert sizes.main(tree) == 1
    assert f"{name} has " in capsys.readouterr().err
    monkeypatch.setitem(sizes.REASONS, name, "a table")
    assert sizes.main(tree) == 0


def test_a_reason_that_is_not_needed_any_more_fails(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sizes.REASONS, "api/gone.py", "a table")
    assert sizes.main(tree) == 1
    assert "api/gone.py is listed" in capsys.readouterr().err

import os
from typing import Any

import pytest

from tests.support.folders import short_folder


def test_what_is_written_while_a_folder_is_removed_is_removed_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late, rmdir = iter(["sub/late", "late"]), os.rmdir

    def rmdir_of_a_busy_folder(*args: Any, **kwargs: Any) -> None:
        if name := next(late, None):
            (folder / name).write_text("of a server that ends")
        rmdir(*args, **kwargs)

    with short_folder() as folder:
        (folder / "sub").mkdir()
        monkeypatch.setattr(os, "rmdir", rmdir_of_a_busy_folder)

    assert not folder.exists()

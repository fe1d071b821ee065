"""The executor in docs/executors.md is executed as it stands there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mitosis.contracts.outcome import FailureKind
from tests.support.checkout import ROOT
from tests.support.executor_stage import stage


@pytest.fixture
def kind() -> Any:
    text = (ROOT / "docs/executors.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/executors.md", "exec"), names)  # noqa: S102 - the example
    return names["ShelfKind"]()


async def test_the_executor_of_the_document_works(kind: Any, tmp_path: Path) -> None:
    with stage(tmp_path, "shelf", kind, {"width": 3}) as it:
        ended = await it.start({"books": ["c", "a", "b"]}, checkpoint=1).ended()
        assert ended.kind is None, ended
        assert json.loads(ended.result or b"") == ["a", "b", "c"]
        assert it.kept.checkpoints == [2, 3]
        assert [one.fraction for one in it.kept.progress_of] == [pytest.approx(2 / 3), 1.0]
        refused = await it.start({"books": list("abcd")}).ended()
        assert refused.kind is FailureKind.TERMINATED
        assert "raise its width" in (refused.message or "")

from typing import Any
from xml.etree import ElementTree as ET

from mitosis.jobs.reading import definition_of
from mitosis.jobs.svg import svg_graph


def test_texts_are_escaped_and_every_edge_says_its_outcome() -> None:
    steps: dict[str, Any] = {
        "a": {"command": ["x"], "description": "<script>alert(1)</script> & \x00\x1b \ud7ff"},
        "b": {"command": ["x"], "after": {"a": "failure"}, "when": "results.a == '</title>'"},
    }
    text = svg_graph(definition_of({"name": "j", "steps": steps}))
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; \ufffd\ufffd" in text
    assert "b after a: failure" in text
    ET.fromstring(text)  # noqa: S314 - it was made here

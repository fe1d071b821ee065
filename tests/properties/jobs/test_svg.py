"""The image of any graph is XML with shapes and texts only."""

from typing import Any
from xml.etree import ElementTree as ET

from hypothesis import given, settings

from mitosis.jobs.reading import definition_of
from mitosis.jobs.svg import svg_graph
from tests.support.examples import examples
from tests.support.random_jobs import jobs

SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {"svg", "title", "desc", "rect", "g", "path", "text"}


@settings(max_examples=examples(15), deadline=None)
@given(jobs())
def test_the_image_is_xml_with_shapes_and_texts_only(fields: dict[str, Any]) -> None:
    job = definition_of(fields)
    image = ET.fromstring(svg_graph(job))  # noqa: S314 - it was made here
    assert {one.tag.removeprefix(SVG) for one in image.iter()} <= ALLOWED
    names = [name for one in image.iter() for name in one.attrib]
    assert not [
        name for name in names if name.startswith("on") or "href" in name or name == "style"
    ]
    assert len(image.findall(f"{SVG}g")) == len(job.steps)
    boxes = {(g[1].get("x"), g[1].get("y")) for g in image.findall(f"{SVG}g")}
    assert len(boxes) == len(job.steps)
    drawn = [p for p in image.findall(f"{SVG}path") if p.get("fill") == "none"]
    assert len(drawn) == sum(len(step.after) for step in job.steps.values())

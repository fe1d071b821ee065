"""The graph of a definition as an SVG image: layers from left to right, edges by their outcome.

Made as an XML tree, so that every text is escaped. No scripts, no links, no style sheets: it may be shown
below a strict content security policy. Source: SVG 1.1, XML 1.0 section 2.2 "Characters".
"""

from collections.abc import Mapping
from typing import NamedTuple
from xml.etree import ElementTree as ET

from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.drawing import Edge, edges_of, size_text
from mitosis.jobs.fields import Outcome
from mitosis.jobs.order import layers_of

_WIDTH, _HEIGHT = 200, 56
_GAP_X, _GAP_Y, _MARGIN = 90, 26, 24
_LONGEST = 24
"""Letters that fit into a box."""
_COLOURS: Mapping[Outcome, tuple[str, str]] = {
    Outcome.SUCCESS: ("#2e7d32", ""),
    Outcome.FAILURE: ("#c62828", "6 3"),
    Outcome.ALWAYS: ("#546e7a", "2 3"),
    Outcome.EACH: ("#1565c0", ""),
}
"""Colour and dashes of an edge; its text says the same."""
_NAMESPACE = "http://www.w3.org/2000/svg"


class _Box(NamedTuple):
    x: int
    y: int


def svg_graph(definition: JobDefinition) -> str:
    """Return the image as text, ending with a line break."""
    boxes = _boxes(definition)
    width = max(box.x for box in boxes.values()) + _WIDTH + _MARGIN
    height = max(box.y for box in boxes.values()) + _HEIGHT + _MARGIN
    facts = {"viewBox": f"0 0 {width} {height}", "width": str(width), "height": str(height)}
    image = ET.Element(
        "svg", {"xmlns": _NAMESPACE, **facts, "role": "img", "font-family": "sans-serif"}
    )
    _text(image, "title", f"Steps of {definition.name}")
    edges = edges_of(definition)
    _text(image, "desc", "; ".join(f"{e.after} after {e.before}: {e.outcome}" for e in edges))
    ET.SubElement(image, "rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    for edge in edges:
        _draw_edge(image, edge, boxes)
    for name, box in boxes.items():
        _draw_box(image, definition, name, box)
    ET.indent(image)
    return ET.tostring(image, encoding="unicode") + "\n"


def _boxes(definition: JobDefinition) -> dict[str, _Box]:
    """Place the layers side by side; within a layer, steps are near the steps that they come after."""
    found: dict[str, _Box] = {}
    for number, layer in enumerate(layers_of(definition.steps)):
        rows = {name: _mean_row(definition, name, found) for name in layer}
        for row, name in enumerate(sorted(layer, key=lambda one: (rows[one], one))):
            x = _MARGIN + number * (_WIDTH + _GAP_X)
            found[name] = _Box(x, _MARGIN + row * (_HEIGHT + _GAP_Y))
    return found


def _mean_row(definition: JobDefinition, name: str, found: Mapping[str, _Box]) -> float:
    rows = [found[before].y for before in definition.steps[name].after]
    return sum(rows) / len(rows) if rows else 0.0


def _draw_box(image: ET.Element, definition: JobDefinition, name: str, box: _Box) -> None:
    step = definition.steps[name]
    group = ET.SubElement(image, "g")
    remarks = [one for one in (step.description, step.when and f"when {step.when}") if one]
    _text(group, "title", "\n".join([name, *remarks]))
    shape = {"x": box.x, "y": box.y, "width": _WIDTH, "height": _HEIGHT, "rx": 6}
    colours = {"fill": "#eceff1", "stroke": "#37474f"}
    dashes = {"stroke-dasharray": "4 3"} if step.when is not None else {}
    ET.SubElement(group, "rect", {k: str(v) for k, v in shape.items()} | colours | dashes)
    size = size_text(step)
    second = f"{step.executed_by} {size}".strip()
    for text, y, facts in (
        (name, 24, {"font-size": "14", "font-weight": "bold"}),
        (second, 42, {"font-size": "12"}),
    ):
        place = {"x": str(box.x + _WIDTH // 2), "y": str(box.y + y), "text-anchor": "middle"}
        _text(group, "text", _short(text), place | facts | {"fill": "#212121"})


def _draw_edge(image: ET.Element, edge: Edge, boxes: Mapping[str, _Box]) -> None:
    start, end = boxes[edge.before], boxes[edge.after]
    x1, y1 = start.x + _WIDTH, start.y + _HEIGHT // 2
    x2, y2 = end.x, end.y + _HEIGHT // 2
    bend = _GAP_X // 2
    colour, dashes = _COLOURS[edge.outcome]
    path = {
        "d": f"M {x1} {y1} C {x1 + bend} {y1}, {x2 - bend} {y2}, {x2 - 7} {y2}",
        "fill": "none",
        "stroke": colour,
        "stroke-width": "3" if edge.outcome is Outcome.EACH else "1.5",
    }
    if dashes:
        path["stroke-dasharray"] = dashes
    _text(
        ET.SubElement(image, "path", path),
        "title",
        f"{edge.after} after {edge.before}: {edge.outcome}",
    )
    tip = f"M {x2 - 8} {y2 - 5} L {x2} {y2} L {x2 - 8} {y2 + 5} Z"
    ET.SubElement(image, "path", {"d": tip, "fill": colour})
    if edge.outcome is not Outcome.SUCCESS:
        place = {"x": str(x2 - 12), "y": str(y2 - 8), "text-anchor": "end", "font-size": "11"}
        _text(image, "text", str(edge.outcome), place | {"fill": colour})


def _text(parent: ET.Element, tag: str, text: str, facts: Mapping[str, str] | None = None) -> None:
    """Add an element with a text, without the characters that XML cannot have."""
    ET.SubElement(parent, tag, dict(facts or {})).text = "".join(
        char if char.isprintable() or char == "\n" else "\ufffd" for char in text
    )


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"

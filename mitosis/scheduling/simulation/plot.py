"""The figures of several policies as a picture (SVG): where host time goes, and who waits how long."""

from collections.abc import Callable, Mapping, Sequence
from html import escape

from mitosis.scheduling.simulation.result import Result

WIDTH, LEFT, RIGHT, BAR, GAP = 760, 130, 70, 16, 10
INK = "#1f2933"
PARTS: Sequence[tuple[str, str, Callable[[Result], float]]] = (
    ("setup and teardown", "#4c78a8", lambda r: r.switch_percent),
    ("drain", "#e0803b", lambda r: r.drain_percent),
    ("idle while work waited", "#8c6bb1", lambda r: r.idle_percent_while_waiting),
)
SHADES = ("#9ecae1", "#4292c6", "#084594", "#08306b")
"""Of the priorities, lowest first."""


def svg(results: Mapping[str, Result]) -> str:
    """Return the picture."""
    losses = _Panel("Host time lost, % of all host time", "%")
    for name, result in results.items():
        losses.add(name, [(of(result), colour) for _, colour, of in PARTS])
    losses.legend = [(label, colour) for label, colour, _ in PARTS]
    priorities = sorted({wait.priority for result in results.values() for wait in result.waits})
    waits = _Panel("Wait of a task group for its first host, 95 of 100, minutes", " min")
    colours = dict(zip(priorities, SHADES, strict=False))
    for name, result in results.items():
        for position, wait in enumerate(reversed(result.waits)):
            label = name if position == 0 else ""
            waits.add(label, [(wait.p95_minutes, colours.get(wait.priority, INK))])
    waits.legend = [(f"priority {p}", colours.get(p, INK)) for p in reversed(priorities)]
    first, height = losses.drawn(20)
    second, height = waits.drawn(height + 24)
    style = "font-family='system-ui, sans-serif' font-size='12'"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' {style}>\n"
        f"<rect width='{WIDTH}' height='{height}' fill='white'/>\n"
        + "\n".join([*first, *second])
        + "\n</svg>\n"
    )


class _Panel:
    """Horizontal bars, each of one or several parts."""

    def __init__(self, title: str, unit: str) -> None:
        self.legend: Sequence[tuple[str, str]] = ()
        self._title = title
        self._unit = unit
        self._bars: list[tuple[str, Sequence[tuple[float, str]]]] = []

    def add(self, label: str, parts: Sequence[tuple[float, str]]) -> None:
        """Add a bar; one without a label belongs to the one before."""
        self._bars.append((label, parts))

    def drawn(self, top: float) -> tuple[list[str], int]:
        """Return the elements from this height on, and the height at which they end."""
        y = top
        lines = [_text(8, y, self._title, weight="600")]
        x = 8.0
        y += 20
        for label, colour in self.legend:
            lines.append(f"<rect x='{x:.0f}' y='{y - 9}' width='10' height='10' fill='{colour}'/>")
            lines.append(_text(x + 15, y, label))
            x += 30 + 7 * len(label)
        most = max((sum(value for value, _ in parts) for _, parts in self._bars), default=0.0)
        scale = (WIDTH - LEFT - RIGHT) / (most or 1.0)
        for label, parts in self._bars:
            y += BAR + (GAP if label else 2)
            lines += self._bar(label, parts, y, scale)
        return lines, int(y + 12)

    def _bar(
        self, label: str, parts: Sequence[tuple[float, str]], y: float, scale: float
    ) -> list[str]:
        x, top = float(LEFT), y - BAR + 4
        lines = [_text(LEFT - 8, y, label, anchor="end")] if label else []
        for value, colour in parts:
            width = value * scale
            size = f"width='{max(width, 0.5):.1f}' height='{BAR}'"
            lines.append(f"<rect x='{x:.1f}' y='{top:.0f}' {size} fill='{colour}'/>")
            x += width
        total = sum(value for value, _ in parts)
        lines.append(_text(x + 6, y, f"{total:,.1f}{self._unit}"))
        return lines


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "400") -> str:
    return (
        f"<text x='{x:.0f}' y='{y:.0f}' fill='{INK}' text-anchor='{anchor}' font-weight='{weight}'>"
        f"{escape(text)}</text>"
    )

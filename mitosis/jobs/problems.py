"""What is wrong with a definition: all problems of it, each with its field and, from a file, its place."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from typing import TypeAlias

from mitosis.contracts.errors import InvalidRequest
from mitosis.contracts.mismatch import joined_path

Path: TypeAlias = tuple[str | int, ...]
Place: TypeAlias = tuple[int, int]
"""Line and column, from 1."""
MOST_PROBLEMS = 100
"""More are not listed: each costs time, and the first ones lead to the others."""
MOST_HINTS = 10
"""Problems with a hint; looking for a name among a thousand takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name that does not exist, among those that do."""

    name: str
    known: Iterable[str]
    plural: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and what would be right."""

    path: Path
    message: str
    place: Place | None = None
    unknown: Unknown | None = None
    """:func:`listed` makes a hint of it."""

    @property
    def field(self) -> str:
        return joined_path(self.path)

    def text(self, file: str = "") -> str:
        """Return the problem as ``FILE:LINE:COLUMN: FIELD: MESSAGE``, without what is not known."""
        where = [file] if file else []
        if self.place is not None:
            where.extend(map(str, self.place))
        parts = [":".join(where), self.field, self.message]
        return _escaped(": ".join(part for part in parts if part))

    def document(self) -> dict[str, object]:
        """Return the problem as JSON."""
        line, column = self.place or (None, None)
        return {"field": self.field, "message": self.message, "line": line, "column": column}


def listed(problems: Iterable[Problem]) -> list[Problem]:
    """Return the first problems; the first ones about unknown names have hints."""
    found: list[Problem] = []
    hints = 0
    for one in islice(problems, MOST_PROBLEMS):
        if one.unknown is None or hints == MOST_HINTS:
            found.append(one)
            continue
        hints += 1
        hint = near(one.unknown.name, one.unknown.known, one.unknown.plural)
        found.append(replace(one, message=f"{one.message}; {hint}"))
    return found


def placed(problems: Iterable[Problem], places: Mapping[Path, Place]) -> list[Problem]:
    """Return the problems with the place of their field, or of the nearest field above, in file order."""
    found = [replace(one, place=one.place or _place(one.path, places)) for one in problems]
    return sorted(found, key=lambda one: one.place or (0, 0))


def refusal(problems: Sequence[Problem], file: str = "") -> InvalidRequest:
    """Return the error for problems; its fact ``problems`` has all of them."""
    lines = [problem.text(file) for problem in problems]
    first = problems[0].field if len(problems) == 1 and not file else None
    count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
    head = f"{file or 'the definition'} has {count}"
    message = problems[0].message if first else "\n".join([head, *lines])
    return InvalidRequest(
        message, field=first, file=file or None, problems=[one.document() for one in problems]
    )


def near(name: str, known: Iterable[str], plural: str) -> str:
    """Return a hint: the name that resembles this one, or all names."""
    names = list(known)
    if close := get_close_matches(name, names, n=1, cutoff=0.6):
        return f"did you mean {close[0]}?"
    if not names:
        return f"there are no {plural}"
    listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return f"the {plural} are {listed}"


def _escaped(text: str) -> str:
    """Escape control characters, which a key of a file may have."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def _place(path: Path, places: Mapping[Path, Place]) -> Place | None:
    for end in range(len(path), -1, -1):
        if (found := places.get(path[:end])) is not None:
            return found
    return None

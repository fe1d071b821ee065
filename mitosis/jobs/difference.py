"""What differs between two definitions, field by field; defaults count as written."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mitosis.contracts.mismatch import joined_path
from mitosis.jobs.canonical import plain_fields
from mitosis.jobs.definition import JobDefinition
from mitosis.jobs.problems import Path

_NAMED = ("parameters", "groups", "steps")


class _Absent:
    """In the place of a value that one side does not have."""


ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs, or a step, a parameter or a group that only one side has."""

    path: Path
    before: Any = ABSENT
    after: Any = ABSENT
    renamed_to: str | None = None

    def text(self) -> str:
        """Return the change on one line."""
        field = joined_path(self.path)
        if self.renamed_to is not None:
            return f"{field}: renamed to {self.renamed_to}"
        if self.before is ABSENT:
            return f"{field}: added: {_written(self.path, self.after)}"
        if self.after is ABSENT:
            return f"{field}: removed: {_written(self.path, self.before)}"
        return f"{field}: {_written(self.path, self.before)} → {_written(self.path, self.after)}"

    def document(self) -> dict[str, Any]:
        """Return the change as JSON; a side that is absent has no key."""
        sides = {"before": self.before, "after": self.after, "renamed_to": self.renamed_to}
        given = {
            k: v
            for k, v in sides.items()
            if v is not ABSENT and (v is not None or k != "renamed_to")
        }
        return {"field": joined_path(self.path), **given}


def changes_between(one: JobDefinition, other: JobDefinition) -> list[Change]:
    """Return what has to change in ``one`` to make it ``other``; nothing if they are equal."""
    before, after = one.model_dump(mode="json"), other.model_dump(mode="json")
    plain = {"before": plain_fields(one), "after": plain_fields(other)}
    found = list(_differences({k: v for k, v in before.items() if k not in _NAMED}, after, ()))
    for part in _NAMED:
        found += _of_part(part, before[part], after[part], plain)
    return found


def _of_part(
    part: str, before: Mapping[str, Any], after: Mapping[str, Any], plain: Mapping[str, Any]
) -> Iterator[Change]:
    removed = [name for name in before if name not in after]
    added = [name for name in after if name not in before]
    for name in list(removed):
        twin = next((new for new in added if _is_same(after[new], before[name])), None)
        if twin is not None:
            yield Change((part, name), renamed_to=twin)
            removed.remove(name)
            added.remove(twin)
    for name in sorted(removed):
        yield Change((part, name), before=plain["before"][part][name])
    for name in sorted(added):
        yield Change((part, name), after=plain["after"][part][name])
    for name in sorted(before.keys() & after.keys()):
        yield from _differences(before[name], after[name], (part, name))


def _differences(before: Any, after: Any, path: Path) -> Iterator[Change]:
    """Compare objects key by key; lists and values as wholes."""
    if _is_same(before, after):
        return
    if not isinstance(before, dict) or not isinstance(after, dict):
        yield Change(path, before, after)
        return
    names = [*before, *(name for name in after if name not in before)] if path else list(before)
    for name in names:
        one, other = before.get(name, ABSENT), after.get(name, ABSENT)
        if one is ABSENT or other is ABSENT:
            yield Change((*path, name), one, other)
        else:
            yield from _differences(one, other, (*path, name))


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same in JSON, where true is not 1 and keys have no order."""
    return bool(one == other) and _sorted(one) == _sorted(other)


def _sorted(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _written(path: Path, value: Any) -> str:
    if path[-1] == "command" and isinstance(value, list):
        return shlex.join(value)
    return json.dumps(value, ensure_ascii=False)

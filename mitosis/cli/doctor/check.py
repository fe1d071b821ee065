"""One line of `mitosis doctor`: what was checked, what was found, and advice."""

from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; ``advice`` is empty if the state is ok."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""

    def as_json(self) -> dict[str, str]:
        return asdict(self)


def ok(name: str, found: str) -> Check:
    return Check(name, "ok", found)


def warn(name: str, found: str, advice: str) -> Check:
    return Check(name, "warn", found, advice)


def fail(name: str, found: str, advice: str) -> Check:
    return Check(name, "fail", found, advice)

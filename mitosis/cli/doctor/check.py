"""One line of `mitosis doctor`: what was looked at, what was found, what to do about it."""

from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """``advice`` is empty when the state is ok."""

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

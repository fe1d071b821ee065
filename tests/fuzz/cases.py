"""What a call sends: data from the OpenAPI document with values of objects that exist, or damaged bytes."""

import json
import random
from copy import copy
from typing import Any

from schemathesis import Case

from tests.fuzz.examples import BODIES
from tests.fuzz.world import World

REAL = 0.8
"""How often a parameter that can name an object names one that exists."""
PURE = 0.3
"""How often the members of a body are all random."""
LONGEST_HOLD_SECONDS = 0.05
HOLDS = ("wait_seconds",)
KEPT = frozenset({"name", "version", "namespace"})
"""Their values name objects in paths; in bodies they name what is new."""


def copy_of(case: Case[Any]) -> Case[Any]:
    """Copy what ``use_real_values`` replaces, so that one case serves several calls."""
    return Case(
        case.operation,
        case.method,
        case.path,
        path_parameters=dict(case.path_parameters),
        headers=copy(case.headers),
        cookies=dict(case.cookies),
        query=dict(case.query),
        body=case.body,
        media_type=case.media_type,
        multipart_content_types=case.multipart_content_types,
        meta=case.meta,
    )


def use_real_values(case: Case[Any], world: World, dice: random.Random) -> None:
    """Replace values of the case by those of objects that exist, and hold no call for long."""
    for name, value in case.path_parameters.items():
        of = f"{name} of {_noun(case.operation.path)}"
        case.path_parameters[name] = _real(of if of in world.pool else name, value, world, dice)
    for name, value in case.query.items():
        case.query[name] = _real(name, value, world, dice)
    for name in ("Mitosis-Incarnation",):
        if name in case.headers and dice.random() < REAL:
            case.headers[name] = str(world.some(name, dice))
    if isinstance(case.body, dict | list):
        case.body = _over_example(case, dice)
        case.body = _in_body("", case.body, world, dice)


def _over_example(case: Case[Any], dice: random.Random) -> Any:
    """Lay some members of the body over those of one that succeeds, in most cases."""
    example = BODIES.get(f"{case.operation.method.upper()} {case.operation.path}")
    if example is None or dice.random() < PURE or not isinstance(case.body, dict):
        return case.body
    number = str(dice.randrange(10**9))
    whole = json.loads(json.dumps(example).replace("{n}", number))
    count = min(len(case.body), dice.choice((0, 1, 1, 2, 3)))
    names = dice.sample(sorted(case.body, key=str), count)
    return {**whole, **{name: case.body[name] for name in names}}


def _noun(path: str) -> str:
    return path.removeprefix("/api/v1/").partition("/")[0]


def _real(name: str, value: Any, world: World, dice: random.Random) -> Any:
    if name in HOLDS:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return min(value, LONGEST_HOLD_SECONDS) if number else value
    found = world.some(name, dice)
    return value if found is None or dice.random() > REAL else found


def _in_body(key: str, value: Any, world: World, dice: random.Random) -> Any:
    if isinstance(value, dict):
        return {name: _in_body(name, item, world, dice) for name, item in value.items()}
    if isinstance(value, list):
        return [_in_body(key.removesuffix("s"), item, world, dice) for item in value]
    return value if key in KEPT else _real(key, value, world, dice)


def damaged(body: Any, dice: random.Random) -> bytes:
    """Return the body as bytes that are no JSON any more, or JSON that few expect."""
    text = json.dumps(body, default=str).encode()
    where = dice.randrange(len(text) + 1)
    begin, end = text[:where], text[where:]
    return dice.choice(
        (
            begin,
            begin + bytes([dice.randrange(256)]) + end,
            begin + b"\\u0000" + end,
            text.replace(b'"', b'"\\ud800', 1 + dice.randrange(3)),
            b"[" * 1000 + text + b"]" * 1000,
            text.replace(b"1", b"1e400").replace(b"0", b"NaN"),
            b'{"a":' * 300 + text + b"}" * 300,
            text + text,
        )
    )

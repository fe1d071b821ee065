"""Values in JSON text that cannot be stored, and keys that stand twice."""

import msgspec
import pytest

from api.json_text import holds_nul, nul_field, repeated_key, unfit, without_nul


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (rb'"a\u0000b"', rb'"a\ufffdb"'),
        (rb'"\u0000\u0000"', rb'"\ufffd\ufffd"'),
        (rb'"a\\u0000"', rb'"a\\u0000"'),
        (rb'"a\\\u0000"', rb'"a\\\ufffd"'),
        (b'"plain"', b'"plain"'),
    ],
)
def test_nul_characters_in_json(text: bytes, kept: bytes) -> None:
    assert holds_nul(text) == (text != kept)
    assert without_nul(text) == kept
    msgspec.json.decode(kept)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (rb'{"a":[1,{"b":"x\u0000"}]}', "a[1].b"),
        (rb'{"a":{"k\u0000":1}}', "a"),
        (b"[" * 900 + rb'"\u0000"' + b"]" * 900, "[0]" * 900),
        (b'{"a":"b"}', None),
    ],
)
def test_the_text_that_holds_nul_is_found_at_any_depth(text: bytes, place: str | None) -> None:
    assert nul_field(text) == place


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        (b'{"a":[1e999]}', "a[0]", "1e999 is out of range"),
        (b'{"a":NaN}', "a", "no number of JSON"),
        (rb'{"a":"\ud800"}', "a", "lone surrogate"),
        (b"[" + b"9" * 5_000 + b"]", "[0]", "5000 digits"),
    ],
)
def test_a_value_that_cannot_be_stored_is_found(text: bytes, place: str, why: str) -> None:
    found = unfit(text)
    assert found is not None
    assert found[0] == place
    assert why in found[1]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (b'{"a":1,"b":2,"a":3}', "a"),
        (b'[{"x":{"b":1,"b":1}}]', "b"),
        (b'{"a":{"b":1},"b":1}', None),
    ],
)
def test_a_key_that_stands_twice_in_one_object_is_found(text: bytes, key: str | None) -> None:
    assert repeated_key(text) == key

"""Words that a plain sentence does without stay out of the product: its comments, texts and names."""

import re

import pytest

from tests.support.checkout import ROOT

PACKAGES = ("mitosis", "workflows", "activities", "manager_agent", "api", "migrations")
SUFFIXES = {".py", ".sql", ".mako"}
FILES = [
    path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*"))
    if path.suffix in SUFFIXES
]

WORDS = ("nobody", "somebody", "whoever", "anew", "told", "tell", "tells", "meanwhile", "whatever")
# An underscore separates words too.
FOUND = re.compile(rf"(?<![a-z])(?:{'|'.join(WORDS)})(?![a-z])", re.IGNORECASE)
NOT_PROSE = re.compile(r"\.tell\(\)|``nobody``|\"nobody\"|NOBODY|as nobody\"")
"""A method of Python's files, and the user account of that name."""


def found_in(text: str) -> list[str]:
    return FOUND.findall(NOT_PROSE.sub("", text))


def test_the_words_do_not_come_back() -> None:
    places = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for _ in found_in(line)
    ]
    assert not places, "rewrite these sentences:\n" + "\n".join(places)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# Nobody is told", ["Nobody", "told"]),
        ("def tell_watchers(): ...", ["tell"]),
        ("size = file.tell()", []),
        ("a newer one is renewed; the teller", []),
    ],
)
def test_words_are_found_in_sentences_and_in_names(text: str, found: list[str]) -> None:
    assert found_in(text) == found

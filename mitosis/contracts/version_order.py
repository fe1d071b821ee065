"""The order of versions of a named task, any text: that of Semantic Versioning as far as it goes."""

import re
from typing import TypeAlias

_PREFIX = re.compile(r"[vV](?=[0-9])")
_PIECE = re.compile(r"[0-9]+|[A-Za-z]+")

_Pieces: TypeAlias = tuple[tuple[bool, int, str], ...]
VersionKey: TypeAlias = tuple[bool, _Pieces, _Pieces, _Pieces, str]


def version_key(version: str) -> VersionKey:
    """Return what a version is sorted by: numbers as numbers, and pre-releases before all releases.

    A pre-release has a hyphen before any ``+``, as in ``1.4.0-rc.1``. A leading ``v`` does not count.
    """
    prefix = _PREFIX.match(version)
    core, _, build = version[1 if prefix else 0 :].partition("+")
    release, hyphen, pre_release = core.partition("-")
    return (not hyphen, _pieces(release), _pieces(pre_release), _pieces(build), version)


def _pieces(text: str) -> _Pieces:
    return tuple(
        (False, int(piece), "") if piece.isdigit() else (True, 0, piece)
        for piece in _PIECE.findall(text)
    )

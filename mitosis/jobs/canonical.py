"""The canonical form of a definition: the JSON that is stored, and the digest that names a version."""

import hashlib
import json
from typing import Any

from mitosis.jobs.definition import JobDefinition


def plain_fields(definition: JobDefinition) -> dict[str, Any]:
    """Return the fields that differ from their defaults, as JSON values."""
    return definition.model_dump(mode="json", exclude_defaults=True)


def canonical_json(definition: JobDefinition) -> str:
    """Return the definition as JSON text; equal definitions have equal text.

    Keys are sorted and defaults left out, so a field that a later version adds changes no digest.
    """
    return json.dumps(
        plain_fields(definition),
        ensure_ascii=False,
        allow_nan=False,
        sort_keys=True,
        separators=(",", ":"),
    )


def digest(definition: JobDefinition) -> str:
    """Return the SHA-256 of the canonical form, in hexadecimal."""
    return hashlib.sha256(canonical_json(definition).encode()).hexdigest()

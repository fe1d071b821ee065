"""The JSON Schema of definitions, with which editors complete and check them while they are written."""

from typing import Any

from mitosis.jobs.definition import JobDefinition

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def definition_schema() -> dict[str, Any]:
    """Return the schema of what a user writes.

    It accepts all that is right, and some that is not: names of steps, references and cycles are checked by
    ``mitosis job check``.
    """
    schema = JobDefinition.model_json_schema(mode="validation")
    return {"$schema": DIALECT, **schema, "title": "Mitosis job definition"}

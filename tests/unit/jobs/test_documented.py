"""docs/jobs.md: every YAML block is a definition, and every field is in it."""

import re

import pytest

from mitosis.contracts.hook import HookSpec
from mitosis.jobs.definition import GroupSettings, JobDefinition, Parameter, Retry, Step
from mitosis.jobs.fields import Outcome, ParameterType
from mitosis.jobs.loading import read_definition
from mitosis.jobs.reference_checks import JOB_FIELDS, RUN_FIELDS, TASK_FIELDS
from tests.support.checkout import ROOT

PAGES = {
    page.name: page.read_text()
    for page in sorted((ROOT / "docs").glob("*.md"))
    if page.name == "jobs.md" or page.name.startswith("from-")
}
BLOCKS = [
    pytest.param(block, id=f"{name}-{at}")
    for name, text in PAGES.items()
    for at, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_yaml_block_is_a_definition(block: str) -> None:
    assert read_definition(block).steps


@pytest.mark.parametrize("model", [JobDefinition, Step, Parameter, Retry, GroupSettings, HookSpec])
def test_every_field_is_documented(model: type[JobDefinition]) -> None:
    written = set(re.findall(r"`([\w.]+)`", PAGES["jobs.md"]))
    assert [name for name in model.model_fields if name not in written] == []


def test_every_word_of_a_field_is_documented() -> None:
    written = set(re.findall(r"`([\w.]+)`", PAGES["jobs.md"]))
    fields = {f"task.{one}" for one in TASK_FIELDS} | {f"job.{one}" for one in JOB_FIELDS}
    fields |= {f"run.{one}" for one in RUN_FIELDS}
    assert {*map(str, Outcome), *map(str, ParameterType), *fields} - written == set()

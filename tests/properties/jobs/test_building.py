"""Jobs in Python come to the same definition as jobs in YAML, by the same checks."""

from typing import Any

from hypothesis import given, settings

from mitosis import Job, step
from mitosis.jobs.canonical import digest
from mitosis.jobs.reading import definition_of
from tests.support.examples import examples
from tests.support.random_jobs import jobs


def len_of(text: str) -> int:
    return len(text)


@settings(max_examples=examples(10), deadline=None)
@given(jobs())
def test_any_job_of_fields_is_the_same_job_in_python(fields: dict[str, Any]) -> None:
    rest = {k: v for k, v in fields.items() if k not in {"name", "steps"}}
    job = Job(fields["name"], **rest)
    for name, one in fields["steps"].items():
        own = dict(one)
        if "command" in own:
            job.command(name, own.pop("command"), **own)
        elif "named_task" in own:
            job.task(name, own.pop("named_task"), **own)
        else:
            job.add(step(name=name, **own)(len_of), handler=own["handler"])
    assert digest(job.definition()) == digest(definition_of(fields))

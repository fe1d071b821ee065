"""Tables and details of schedules. Pure functions of the API's answers."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from mitosis.cli.rendering import Item, Table, one_line, time_text

if TYPE_CHECKING:
    from mitosis.contracts.schedules import BackfillAnswer, ScheduleInfo


def schedule_item(one: "ScheduleInfo") -> Item:
    """Return the fields of a schedule that have a value, the most important ones first."""
    run = one.last_run
    fields = [
        ("schedule", f"{one.group_name}/{one.name}"),
        ("job", f"{one.group_name}/{one.job_name}, {_version(one)}"),
        ("times", one.timing().text()),
        ("paused", "yes" if one.paused else ""),
        ("note", one.note or ""),
        ("next", times_text(one.next_times)),
        ("overlap", str(one.overlap)),
        ("jitter", f"up to {one.jitter}" if one.jitter else ""),
        ("catch-up", f"within {one.catch_up}"),
        ("from", time_text(one.start_at)),
        ("until", time_text(one.end_at)),
        ("parameters", "\n".join(f"{name}={_text(v)}" for name, v in one.parameters.items())),
        ("labels", ", ".join(one.labels)),
        ("last run", "" if run is None else f"{run.run_id}, {run.state}, for {run.nominal_time}"),
        ("without run", _without_run(one)),
        ("in Temporal", "" if one.carried_revision == one.revision else "not yet"),
        ("refused", _at(one.refusal, one.refused_at)),
        ("problem", _at(one.problem, one.problem_at)),
        ("undone", _at(one.reverted, one.reverted_at)),
        ("owner", one.owner),
        ("created", time_text(one.created_at)),
    ]
    shown = [(label, text) for label, text in fields if text]
    return Item(one.model_dump(mode="json"), shown, f"{one.group_name}/{one.name}")


def schedules_table(schedules: "Sequence[ScheduleInfo]") -> Table:
    return Table(
        data=[one.model_dump(mode="json") for one in schedules],
        columns=("schedule", "user group", "job", "next", "state", "times"),
        rows=[
            (
                one.name,
                one.group_name,
                one.job_name,
                times_text(one.next_times[:1]) or "-",
                _state(one),
                one_line(one.timing().text()),
            )
            for one in schedules
        ],
        ids=[f"{one.group_name}/{one.name}" for one in schedules],
        empty="no schedules (create one with: mitosis job schedule create JOB --cron …)",
    )


def backfill_table(answer: "BackfillAnswer") -> Table:
    texts = [time.isoformat(sep=" ") for time in answer.times]
    return Table(
        data=answer.model_dump(mode="json"),
        columns=("time",),
        rows=[(text,) for text in texts],
        ids=texts,
        empty=f"each of the {answer.have_runs} times has a run",
    )


def times_text(times: "Sequence[datetime]") -> str:
    """Return times with the offset of their zone, one per line."""
    return "\n".join(time.isoformat(sep=" ") for time in times)


def _version(one: "ScheduleInfo") -> str:
    """Return which version its runs have, and which others there are."""
    last = one.latest_version
    if isinstance(one.version, int):
        return f"version {one.version}" + (f" of {last}" if one.version != last else "")
    accepted = one.accepted_version or 0
    also = f", up to {accepted} also of others" if accepted < last else ""
    return f"the latest version, now {last}{also}"


def _state(one: "ScheduleInfo") -> str:
    if one.paused:
        return "paused"
    if one.refusal is not None:
        return "refused"
    return "-" if one.last_run is None else str(one.last_run.state)


def _without_run(one: "ScheduleInfo") -> str:
    """Return the last time that has got no run, with the reason."""
    last = one.without_run
    return "" if last is None else f"{last.nominal_time}: {one_line(last.reason)}"


def _at(what: str | None, at: datetime | None) -> str:
    return "" if what is None else f"{time_text(at)}: {one_line(what)}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

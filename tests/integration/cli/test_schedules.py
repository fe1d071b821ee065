"""`mitosis job schedule …` against the real API and PostgreSQL; Temporal is away."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mitosis.cli.exit import ExitStatus
from mitosis.cli.job import schedule as commands
from tests.support.cli_stack import CliStack, cli_stack
from tests.support.command import Ran, mitosis
from tests.support.servers import LoopThread

ETL = "{name: etl, parameters: {date: {}}, steps: {a: {command: [echo, '{{ params.date }}']}}}"
DATE = ("-p", "date={{ run.nominal_date }}")


@pytest.fixture
def stack(
    server_loop: LoopThread, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CliStack]:
    with cli_stack(server_loop, database, tmp_path / "data") as running:
        running.use(monkeypatch)
        monkeypatch.chdir(tmp_path)
        (tmp_path / "etl.yaml").write_text(ETL)
        yield running


@dataclass
class SlowClock:
    """A clock that only pauses move."""

    pauses: list[float]

    def monotonic(self) -> float:
        return sum(self.pauses)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


def schedule(*words: str, status: int = ExitStatus.OK) -> Ran:
    ran = mitosis("job", "schedule", *words)
    assert ran.status == status, ran.err
    return ran


def test_schedules_from_the_first_look_to_the_last(
    stack: CliStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mitosis("job", "define", "etl.yaml").status == ExitStatus.OK
    timing = ("--cron", "30 2 * * mon-fri", "--time-zone", "Europe/Berlin", *DATE)
    planned = schedule("create", "etl", *timing, "--dry-run").out
    assert planned.count(" 02:30:00+") == 5
    assert "no schedules" in schedule("list").out, "a dry run stores nothing"
    made = schedule("create", "etl", *timing, "--note", "weekdays", "--overlap", "buffer_one")
    assert made.err.count(" 02:30:00+") == 5, "the next times come first"
    assert "30 2 * * mon-fri Europe/Berlin" in made.out
    assert "not yet" in made.out, "Temporal is away"
    assert schedule("list", "--quiet").out == "admin/etl\n"

    schedule("update", "etl", "--every", "6h", "--offset", "10m", "--until", "2036-01-01")
    shown = json.loads(schedule("show", "etl", "--json").out)
    assert (shown["cron"], shown["interval"]) == (None, {"every": 21600.0, "offset": 600.0})
    assert shown["end_at"] == "2035-12-31T23:00:00Z", "in the zone of the schedule"
    assert (shown["parameters"], shown["overlap"]) == (
        {"date": "{{ run.nominal_date }}"},
        "buffer_one",
    )
    schedule("update", "etl", "--calendar", "hour=2", "--calendar", "minute=30")
    assert "holidays" in schedule("pause", "etl", "--note", "holidays", "--drop").out
    assert "paused" in schedule("list").out
    schedule("resume", "etl")
    times = schedule("backfill", "etl", "2026-10-24", "2026-10-27", "--dry-run").out
    assert times.splitlines()[1:] == [
        "2026-10-24 02:30:00+02:00",
        "2026-10-25 02:30:00+02:00",
        "2026-10-26 02:30:00+01:00",
    ]
    monkeypatch.setattr(commands, "APPEARS_WITHIN_SECONDS", 0.0)
    asked = schedule("trigger", "etl")
    assert "asked for" in asked.out
    assert "no control worker runs" in asked.err
    assert mitosis("job", "delete", "etl").status != ExitStatus.OK
    schedule("delete", "etl")
    assert mitosis("job", "delete", "etl").status == ExitStatus.OK


def test_a_schedule_keeps_its_version_and_a_trigger_looks_less_and_less_often(
    stack: CliStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mitosis("job", "define", "etl.yaml").status == ExitStatus.OK
    schedule("create", "etl", "--cron", "@daily", *DATE)
    assert "etl, version 1\n" in schedule("show", "etl").out
    (Path("etl.yaml")).write_text(ETL.replace("echo", "printf"))
    assert mitosis("job", "define", "etl.yaml").status == ExitStatus.OK
    assert "etl, version 1 of 2\n" in schedule("show", "etl").out
    assert "the latest version, now 2" in schedule("update", "etl", "--version", "latest").out
    refused = schedule("update", "etl", "--accept", "3", status=ExitStatus.INVALID)
    assert "--accept" in refused.err
    assert "up to 1 also of others" in schedule("update", "etl", "--accept", "1").out
    pauses: list[float] = []
    monkeypatch.setattr(commands, "APPEARS_WITHIN_SECONDS", 60.0)
    monkeypatch.setattr(commands, "time", SlowClock(pauses))
    schedule("trigger", "etl")
    assert len(pauses) < 100, "a minute of looks"


@pytest.mark.parametrize(
    ("words", "option", "says"),
    [
        (["--cron", "61 * * * *", *DATE], "--cron", "minute"),
        (["--every", "1s", *DATE], "--every", "at least 10 seconds"),
        (["--offset", "1s", *DATE], "--offset", "belongs to --every"),
        (["--cron", "@daily", "--time-zone", "Europe/Berln", *DATE], "--time-zone", "Berlin"),
        (["--cron", "@daily", "--from", "soon", *DATE], "--from", "2026-11-28"),
        (["--cron", "@daily", "--until", "2026-01-01", *DATE], "--until", "no time is to come"),
        (["--calendar", "hour", *DATE], "--calendar", "FIELD=TEXT"),
        (["--calendar", "hour=25", *DATE], "--calendar", "hour: '25'"),
        (["--cron", "@daily", "--every", "1h", *DATE], "--cron", "exactly one"),
        (["--cron", "@daily"], "-p", "is required"),
        (
            ["--cron", "@daily", "--version", "last", *DATE],
            "--version",
            "a number from 1, or latest",
        ),
        (["--cron", "@daily", "--version", "9" * 5000, *DATE], "--version", "a number from 1"),
        (["--cron", "@daily", "-p", "day=1"], "-p", "the parameters are date"),
    ],
)
def test_the_option_that_is_wrong_is_named(
    stack: CliStack, words: list[str], option: str, says: str
) -> None:
    mitosis("job", "define", "etl.yaml")
    ran = mitosis("job", "schedule", "create", "etl", *words)
    assert ran.status in (ExitStatus.USAGE, ExitStatus.INVALID), ran.err
    assert option in ran.err
    assert says in ran.err

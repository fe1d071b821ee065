"""The options that make up a schedule, and the times that are given on the command line."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import typer

from mitosis.contracts.errors import InvalidRequest

OPTION_OF_FIELD = {
    "job": "JOB",
    "name": "--name",
    "version": "--version",
    "parameters": "-p",
    "accepted_version": "--accept",
    "labels": "--label",
    "cron": "--cron",
    "interval": "--every",
    "interval.offset": "--offset",
    "calendar": "--calendar",
    "time_zone": "--time-zone",
    "start_at": "--from",
    "end_at": "--until",
    "overlap": "--overlap",
    "jitter": "--jitter",
    "catch_up": "--catch-up",
    "note": "--note",
    "first": "FROM",
    "last": "TO",
}


@dataclass(frozen=True)
class TimingOptions:
    """When a schedule starts runs; None stays as it is."""

    cron: Annotated[
        str | None,
        typer.Option(
            metavar="EXPRESSION", help="Five fields, as in '30 2 * * mon-fri', or @daily."
        ),
    ] = None
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="At multiples of this since 1970, in UTC.")
    ] = None
    offset: Annotated[
        str | None, typer.Option(metavar="TIME", help="So much later than those of --every.")
    ] = None
    calendar: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=TEXT",
            help="At times that match: second, minute, hour, day_of_month, month, year, day_of_week;"
            " repeatable.",
        ),
    ] = None
    time_zone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="As in Europe/Berlin. [default: UTC]"),
    ] = None
    start: Annotated[
        str | None, typer.Option("--from", metavar="WHEN", help="No time before this one counts.")
    ] = None
    end: Annotated[
        str | None, typer.Option("--until", metavar="WHEN", help="No time after this one counts.")
    ] = None
    jitter: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start each run up to so much later.")
    ] = None
    catch_up: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Make up for missed times within this. [default: 1d]"),
    ] = None
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Shown with it, also in the Temporal Web UI.")
    ] = None

    def fields(self, zone: str = "UTC") -> dict[str, Any]:
        """Return the fields that are given; times without an offset are in their zone, or in ``zone``.

        Raises:
            InvalidRequest: names the option and what would be right.
        """
        zone = self.time_zone or zone
        given: dict[str, Any] = {
            "cron": self.cron,
            "interval": self._interval(),
            "calendar": _calendar(self.calendar),
            "time_zone": self.time_zone,
            "start_at": moment(self.start, zone, "--from"),
            "end_at": moment(self.end, zone, "--until"),
            "jitter": _span("Jitter", self.jitter, "--jitter"),
            "catch_up": _span("CatchUp", self.catch_up, "--catch-up"),
            "note": self.note,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _interval(self) -> dict[str, Any] | None:
        every, offset = (
            _span("Every", self.every, "--every"),
            _span("Offset", self.offset, "--offset"),
        )
        if every is None:
            if offset is not None:
                raise InvalidRequest("belongs to --every", option="--offset")
            return None
        return {"every": every} if offset is None else {"every": every, "offset": offset}


def moment(text: str | None, zone: str, option: str) -> datetime | None:
    """Return a time as in ``2026-11-28`` or ``2026-11-28T02:30``, with or without an offset.

    Raises:
        InvalidRequest: it is none.
    """
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"{text!r:.40} is no time; write 2026-11-28, 2026-11-28T02:30 or 2026-11-28T02:30+01:00",
            option=option,
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=_zone(zone))


def _span(kind: str, text: str | None, option: str) -> timedelta | None:
    """Return a duration, checked as the type of this name in the contracts."""
    from mitosis.cli.validation import duration, value_of
    from mitosis.contracts import schedules

    found = duration(text, option)
    if found is not None:
        value_of(getattr(schedules, kind), found, option)
    return found


def _zone(name: str) -> ZoneInfo:
    from mitosis.cli.validation import value_of
    from mitosis.contracts.schedules import TimeZone

    return ZoneInfo(value_of(TimeZone, name, "--time-zone"))


def _calendar(given: list[str] | None) -> dict[str, str] | None:
    if not given:
        return None
    fields: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name in fields:
            raise InvalidRequest(
                f"must be FIELD=TEXT, each field once, not {text!r:.60}", option="--calendar"
            )
        fields[name] = value
    return fields

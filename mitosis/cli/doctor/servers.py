"""Checks of the servers that the settings or the running stack name."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import islice
from typing import TYPE_CHECKING

from mitosis.cli.connection import START, Target, data_dir_of, find_api
from mitosis.cli.doctor.certificate import certificate_check
from mitosis.cli.doctor.check import Check, fail, ok, warn
from mitosis.cli.doctor.host import stack_here
from mitosis.cli.doctor.retention import retention_checks
from mitosis.cli.doctor.schedules import schedule_checks
from mitosis.client.trust import is_loopback, trusting
from mitosis.contracts.errors import (
    ApiUnavailable,
    ConfigurationError,
    MitosisError,
    NotFound,
    Unauthenticated,
)
from mitosis.contracts.processes import ProcessInfo
from mitosis.settings import Settings

if TYPE_CHECKING:
    from mitosis.client.sync import SyncClient

TIMEOUT = timedelta(seconds=5)
CLOCK_ODD_SECONDS = 3.0
CLOCK_BAD_SECONDS = 60.0
MOST_SCHEDULES = 2000
SILENT_SECONDS = 10.0
"""A process writes its row every 3 s."""
UPGRADE = (
    "processes of different versions run beside each other only during an upgrade: start the others again"
    " with the newer version"
)


def server_checks(settings: Settings) -> Iterator[Check]:
    """Run the checks of the servers, one after the other."""
    yield from _api(settings)
    stack = stack_here(data_dir_of(settings))
    address = settings.temporal.address or (stack.temporal_address if stack else None)
    if address is not None:
        yield asyncio.run(_temporal(settings, address))
    if stack is not None and settings.temporal.address is None:
        yield warn(
            "temporal access",
            "every user of this host can reach the embedded server",
            "on a shared host, use a Temporal cluster with access control: MITOSIS_TEMPORAL_ADDRESS",
        )
    database = settings.database
    if database.url is not None:
        yield from _postgres("database", database.url.get_secret_value(), "MITOSIS_DATABASE_URL")
    if database.direct_url is not None:
        url = database.direct_url.get_secret_value()
        yield from _postgres("database, direct", url, "MITOSIS_DATABASE__DIRECT_URL")


def _api(settings: Settings) -> Iterator[Check]:
    try:
        target = find_api(settings)
    except ApiUnavailable as error:
        yield warn("api", error.message, START)
        return
    except MitosisError as error:
        yield fail("api", error.message, str(error.facts.get("hint", "")))
        return
    if target.http_url.startswith("https:"):
        yield certificate_check(target.http_url, target.ca_file, datetime.now(UTC))
    yield from _with_token(target)
    yield from _state_of(target)


def _with_token(target: Target) -> Iterator[Check]:
    """Check what only a user may ask: the access itself, then the processes that run."""
    from mitosis.client.sync import SyncClient

    with SyncClient(
        target.address, target.token, give_up_after=TIMEOUT, ca_file=target.ca_file
    ) as client:
        access = _access(target, client)
        yield access
        if access.state == "ok":
            yield from _processes(client)
            yield from _retention(client)
            yield from _schedules(client)


def _access(target: Target, client: "SyncClient") -> Check:
    try:
        me = client.me()
    except ApiUnavailable as error:
        return fail("api", error.message, f"the address is from {target.origin}; {START}")
    except Unauthenticated as error:
        return fail("api", error.message, "log in with: mitosis login USERNAME")
    except MitosisError as error:
        return fail(
            "api",
            error.message,
            f"is {target.http_url} a Mitosis API? The address is from {target.origin}",
        )
    return ok("api", f"{target.http_url}, as {me.username}")


def _processes(client: "SyncClient") -> Iterator[Check]:
    try:
        yield from process_checks(client.processes().processes)
    except NotFound:
        yield warn("processes", "this API is of a version that does not list them", UPGRADE)
    except MitosisError as error:
        yield fail("processes", error.message, "is PostgreSQL running?")


def _retention(client: "SyncClient") -> Iterator[Check]:
    try:
        yield from retention_checks(client.retention().kinds, datetime.now(UTC))
    except NotFound:
        yield warn("kept", "this API is of a version that deletes nothing by itself", UPGRADE)
    except MitosisError as error:
        yield fail("kept", error.message, "is PostgreSQL running?")


def _schedules(client: "SyncClient") -> Iterator[Check]:
    try:
        yield from schedule_checks(
            list(islice(client.schedules(), MOST_SCHEDULES)), datetime.now(UTC)
        )
    except NotFound:
        yield warn("schedules", "this API is of a version that has none", UPGRADE)
    except MitosisError as error:
        yield fail("schedules", error.message, "is PostgreSQL running?")


def process_checks(processes: Sequence[ProcessInfo]) -> Iterator[Check]:
    """Check that processes of each kind run, all of one version."""
    versions = {one.version for one in processes}
    for kind, name in (("api", "api processes"), ("control", "control processes")):
        found = [one for one in processes if one.kind == kind]
        shown = "; ".join(map(_shown, found))
        if not found:
            yield warn(
                name, "none runs", "start one: mitosis control" if kind == "control" else START
            )
        elif len(versions) > 1:
            yield warn(name, shown, UPGRADE)
        else:
            yield ok(name, shown)


def _shown(process: ProcessInfo) -> str:
    where = f" on {process.host_name}" if process.host_name else ""
    number = f", process {process.pid}" if process.pid else ""
    silent = process.silent_seconds
    late = f", silent for {silent:.0f} s" if silent > SILENT_SECONDS else ""
    return f"{process.version or 'an earlier version'}{where}{number}{late}"


def _state_of(target: Target) -> Iterator[Check]:
    """Check the servers behind the API and its clock; nothing if it does not answer."""
    import httpx2

    url = target.http_url
    try:
        verify = trusting(target.ca_file) if url.startswith("https:") else True
        with httpx2.Client(
            timeout=TIMEOUT.total_seconds(), trust_env=not is_loopback(url), verify=verify
        ) as http:
            ready = http.get(f"{url}/ready")
            before = time.time()
            date = http.get(f"{url}/health").headers.get("Date")
            after = time.time()
    except (httpx2.HTTPError, ConfigurationError):
        return
    if ready.status_code == 503:
        yield fail("api ready", "the API does not reach PostgreSQL", "is PostgreSQL running?")
    elif ready.status_code == 200 and ready.json().get("status") == "degraded":
        advice = "tasks keep running, but task groups do not start or end; is Temporal running?"
        yield warn("api ready", "the API does not reach Temporal", advice)
    elif ready.status_code == 200:
        yield ok("api ready", "it reaches PostgreSQL and Temporal")
    if date is not None:
        server = parsedate_to_datetime(date).timestamp() + 0.5  # the header has whole seconds
        yield clock_check("the API", server - (before + after) / 2)


def clock_check(whose: str, ahead_seconds: float) -> Check:
    """Check how far the clock of a server is ahead; a difference of one or two seconds is harmless."""
    name = f"clock of {whose.removeprefix('the ')}"
    off = abs(ahead_seconds)
    found = f"{off:.0f} s {'ahead of' if ahead_seconds > 0 else 'behind'} this host"
    advice = (
        "set both clocks by NTP (timedatectl set-ntp true): tokens and task times depend on them"
    )
    if off > CLOCK_BAD_SECONDS:
        return fail(name, found, advice)
    if off > CLOCK_ODD_SECONDS:
        return warn(name, found, advice)
    return ok(name, f"within {CLOCK_ODD_SECONDS:g} s of this host")


async def _temporal(settings: Settings, address: str) -> Check:
    from temporalio.client import Client
    from temporalio.service import RPCError

    temporal = settings.temporal
    try:
        async with asyncio.timeout(TIMEOUT.total_seconds()):
            client = await Client.connect(
                address,
                namespace=temporal.namespace,
                tls=temporal.tls,
                api_key=temporal.api_key.get_secret_value() if temporal.api_key else None,
            )
            await client.count_workflows()
    except (RPCError, RuntimeError, TimeoutError) as error:
        reason = str(error) or "no answer"
        return fail("temporal server", f"{address}: {reason}", "is it running, and reachable?")
    return ok("temporal server", f"{address}, namespace {temporal.namespace}")


def _postgres(name: str, url: str, variable: str) -> list[Check]:
    import psycopg

    from mitosis.store.pg.database import split_url

    try:
        plain = split_url(url)[0]
        with psycopg.connect(plain, connect_timeout=int(TIMEOUT.total_seconds())) as link:
            version = link.info.server_version // 10_000
            before = time.time()
            row = link.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
            after = time.time()
    except (psycopg.Error, MitosisError) as error:
        return [fail(name, str(error).strip(), f"check {variable}")]
    if version < 15:
        return [fail(name, f"PostgreSQL {version}", "use PostgreSQL 15 or newer")]
    clock = clock_check("PostgreSQL", row[0] - (before + after) / 2 if row else 0.0)
    return [ok(name, f"PostgreSQL {version}"), clock]

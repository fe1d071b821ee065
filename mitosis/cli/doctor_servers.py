"""Checks of the servers: does what the settings or the running stack name answer, and to us?"""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

from mitosis.cli.connection import START, data_dir_of, find_api, read_connection
from mitosis.cli.doctor_check import Check, fail, ok, warn
from mitosis.contracts.errors import ApiUnavailable, MitosisError
from mitosis.settings import Settings

PATIENCE = timedelta(seconds=5)


def server_checks(settings: Settings) -> Iterator[Check]:
    yield _api(settings)
    stack = read_connection(data_dir_of(settings))
    address = settings.temporal.address or (stack.temporal_address if stack else None)
    if address is not None:
        yield asyncio.run(_temporal(settings, address))
    if stack is not None and settings.temporal.address is None:
        yield warn(
            "temporal access",
            "everybody with a login on this machine can reach the embedded server",
            "on a shared machine use a cluster of your own: MITOSIS_TEMPORAL_ADDRESS",
        )
    if settings.database.url is not None:
        yield asyncio.run(_postgres(settings.database.url.get_secret_value()))


def _api(settings: Settings) -> Check:
    from mitosis.client.sync import SyncClient

    try:
        target = find_api(settings)
    except ApiUnavailable as error:
        return warn("api", error.message, START)
    except MitosisError as error:
        return fail("api", error.message, str(error.facts.get("hint", "")))
    try:
        with SyncClient(target.api_url, target.token, give_up_after=PATIENCE) as client:
            me = client.me()
    except ApiUnavailable as error:
        return fail("api", error.message, START)
    except MitosisError as error:
        return fail("api", error.message, "log in with: mitosis login USERNAME")
    return ok("api", f"{target.api_url}, as {me.username}")


async def _temporal(settings: Settings, address: str) -> Check:
    from temporalio.client import Client
    from temporalio.service import RPCError

    told = settings.temporal
    try:
        async with asyncio.timeout(PATIENCE.total_seconds()):
            client = await Client.connect(
                address,
                namespace=told.namespace,
                tls=told.tls,
                api_key=told.api_key.get_secret_value() if told.api_key else None,
            )
            await client.count_workflows()
    except (RPCError, RuntimeError, TimeoutError) as error:
        reason = str(error) or "no answer"
        return fail("temporal server", f"{address}: {reason}", "is it running, and reachable?")
    return ok("temporal server", f"{address}, namespace {told.namespace}")


async def _postgres(url: str) -> Check:
    import psycopg

    try:
        link = await psycopg.AsyncConnection.connect(
            url, connect_timeout=int(PATIENCE.total_seconds())
        )
        async with link:
            version = link.info.server_version // 10_000
    except psycopg.OperationalError as error:
        return fail("database", str(error).strip(), "check MITOSIS_DATABASE_URL")
    if version < 15:
        return fail("database", f"PostgreSQL {version}", "use PostgreSQL 15 or newer")
    return ok("database", f"PostgreSQL {version}")

import asyncio
import ipaddress
import os
import signal
import socket
import subprocess
from collections import Counter

import httpx2
import pytest
from temporalio import workflow
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from mitosis.contracts.temporal_names import SEARCH_ATTRIBUTES
from mitosis.embedded.data_folder import DataFolder, free_port
from mitosis.embedded.errors import PortInUse, ProgramMissing
from mitosis.embedded.temporal import DYNAMIC_CONFIG, EmbeddedTemporal
from mitosis.embedded.temporal_program import find_temporal_binary
from tests.support.processes import descendants, living
from tests.support.waiting import wait_until_async


async def start_a_workflow(server: EmbeddedTemporal) -> None:
    client = await Client.connect(server.address, namespace="mitosis")
    await client.start_workflow("nobody-runs-it", id="kept", task_queue="none")


async def knows_the_workflow(server: EmbeddedTemporal) -> bool:
    client = await Client.connect(server.address, namespace="mitosis")
    described = await client.get_workflow_handle("kept").describe()
    return described.status is not None and described.status.name == "RUNNING"


async def test_killed_server_is_restarted_at_its_address_with_its_workflows(
    server: EmbeddedTemporal,
) -> None:
    await start_a_workflow(server)
    process = server.process
    assert process is not None
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    await wait_until_async(lambda: process.starts == 2, 30)
    assert await knows_the_workflow(server)


async def test_restart_keeps_addresses_and_workflows(folder: DataFolder) -> None:
    first = EmbeddedTemporal(folder)
    await first.start()
    await start_a_workflow(first)
    running = [p for p in descendants(os.getpid()) if first.process and p.pid == first.process.pid]
    await first.stop()
    assert living(running) == []
    second = EmbeddedTemporal(folder)
    await second.start()
    assert second.address == first.address
    assert second.ui_url != first.ui_url
    assert await knows_the_workflow(second)
    await second.stop()


async def test_settings_choose_the_ports_and_a_taken_one_is_named(folder: DataFolder) -> None:
    port = free_port()
    server = EmbeddedTemporal(folder, port=port)
    await server.start()
    assert server.address == f"127.0.0.1:{port}"
    await server.stop()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(PortInUse, match=f"port {port} .* set MITOSIS_TEMPORAL__PORT"):
            await EmbeddedTemporal(folder, port=port).start()


async def test_it_listens_on_loopback_only_with_the_tuned_flags(server: EmbeddedTemporal) -> None:
    process = server.process
    assert process is not None
    [us] = [p for p in descendants(os.getpid()) if p.pid == process.pid]
    line = " ".join(us.cmdline())
    for flag in ("--ip 127.0.0.1", "journal_mode=WAL", "synchronous=1", "-n mitosis"):
        assert flag in line
    for name, value in DYNAMIC_CONFIG.items():
        assert f"--dynamic-config-value {name}={value}" in line
    listening = {c.laddr.ip for c in us.net_connections() if c.status == "LISTEN"}
    ui = server.ui_url.removeprefix("http://").rpartition(":")[0]
    assert listening == {"127.0.0.1", ui}
    assert ipaddress.ip_address(ui).is_loopback
    assert ui != "127.0.0.1"


async def test_no_port_of_it_takes_requests_of_a_web_page(server: EmbeddedTemporal) -> None:
    await start_a_workflow(server)
    process = server.process
    assert process is not None
    [us] = [p for p in descendants(os.getpid()) if p.pid == process.pid]
    ports = {c.laddr.port for c in us.net_connections() if c.status == "LISTEN"}
    ports -= {int(server.ui_url.rpartition(":")[2])}
    refused = Counter[int]()
    terminate = "/api/v1/namespaces/mitosis/workflows/kept/terminate"
    async with httpx2.AsyncClient() as client:
        for port in ports:
            for host in ("evil.example", f"127.0.0.1:{port}", f"localhost:{port}", "localhost"):
                headers = {"Host": host, "Content-Type": "text/plain"}
                url = f"http://127.0.0.1:{port}"
                try:
                    shown = await client.get(f"{url}/api/v1/namespaces", headers=headers)
                    sent = await client.post(f"{url}{terminate}", headers=headers, content=b"{}")
                except httpx2.HTTPError:
                    continue  # it speaks no HTTP/1.1
                refused[shown.status_code] += 1
                refused[sent.status_code] += 1
    assert refused[403] == 8, refused
    assert not {code for code in refused if code < 400}
    assert await knows_the_workflow(server)


@workflow.defn
class LongWorkflow:
    """Sleeps many times until the server asks it to continue as new."""

    @workflow.run
    async def run(self) -> int:
        while not workflow.info().is_continue_as_new_suggested():
            await asyncio.gather(*(asyncio.sleep(0.01) for _ in range(50)))
        return workflow.info().get_current_history_length()


async def test_a_workflow_continues_as_new_while_its_history_is_short(
    server: EmbeddedTemporal,
) -> None:
    client = await Client.connect(server.address, namespace="mitosis")
    runner = UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue="q", workflows=[LongWorkflow], workflow_runner=runner):
        length = await client.execute_workflow(LongWorkflow.run, id="long", task_queue="q")
    assert 500 <= length <= 700


async def test_a_new_server_knows_our_search_attributes(server: EmbeddedTemporal) -> None:
    """Before anybody asks: a workflow that sets an unknown one is put off for many seconds."""
    client = await Client.connect(server.address, namespace="mitosis")
    known = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace="mitosis")
    )
    assert set(SEARCH_ATTRIBUTES) <= set(known.custom_attributes)


def test_told_program_wins_and_a_missing_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = subprocess.run(
        [find_temporal_binary(), "--version"], capture_output=True, text=True, check=True
    )
    assert "temporal version" in shown.stdout
    monkeypatch.setenv("MITOSIS_TEMPORAL_BIN", "/nowhere/temporal")
    with pytest.raises(ProgramMissing, match=r"/nowhere/temporal.*MITOSIS_TEMPORAL_ADDRESS"):
        find_temporal_binary()

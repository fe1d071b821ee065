import psycopg
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client


def test_database_fixture_is_fresh_and_writable(database: str) -> None:
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regclass('open_task')::text").fetchone() == (
            "open_task",
        )
        connection.execute("CREATE TABLE t (i int)")
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


async def test_temporal_server_has_our_namespace(temporal_server: str) -> None:
    client = await Client.connect(temporal_server, namespace="mitosis")
    request = DescribeNamespaceRequest(namespace="mitosis")
    found = await client.workflow_service.describe_namespace(request)
    assert found.namespace_info.name == "mitosis"

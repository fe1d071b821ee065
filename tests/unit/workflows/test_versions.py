"""The choice of the current build among control workers, against answers of Temporal that are made up."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import (
    DescribeWorkerDeploymentRequest,
    DescribeWorkerDeploymentResponse,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.service import RPCError, RPCStatusCode

from mitosis.contracts.errors import DatabaseUnavailable
from workflows.versions import Versions

OLD, OWN, NEW = "0.0.9-0011-a", "0.1.0-0012-b", "0.2.0-0013-c"


@dataclass
class Deployment:
    """The server, and the namespace on it."""

    current: str = ""
    refuses: RPCStatusCode | None = None
    namespace: str = "mitosis"
    identity: str = "test"
    calls: list[str] = field(default_factory=list)

    @property
    def workflow_service(self) -> "Deployment":
        return self

    async def describe_worker_deployment(
        self, request: DescribeWorkerDeploymentRequest, **_: Any
    ) -> DescribeWorkerDeploymentResponse:
        assert request.deployment_name == "mitosis"
        if not self.current:
            raise RPCError("no such deployment", RPCStatusCode.NOT_FOUND, b"")
        answer = DescribeWorkerDeploymentResponse(conflict_token=b"token")
        routing = answer.worker_deployment_info.routing_config
        routing.current_deployment_version.build_id = self.current
        return answer

    async def set_worker_deployment_current_version(
        self, request: SetWorkerDeploymentCurrentVersionRequest, **_: Any
    ) -> None:
        if self.refuses is not None:
            raise RPCError("refused", self.refuses, b"")
        assert request.conflict_token == (b"token" if self.current else b"")
        self.current = request.build_id
        self.calls.append(request.build_id)


@dataclass
class Builds:
    """What PostgreSQL knows; ``live`` None: it does not answer."""

    live: Sequence[str] | None
    build: str = OWN

    async def live_builds(self) -> Sequence[str]:
        if self.live is None:
            raise DatabaseUnavailable
        return self.live


def versions(server: Deployment, *live: str) -> Versions:
    return Versions(server, Builds(live))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("live", "current", "after"),
    [
        ([OWN], "", OWN),
        ([], "", OWN),
        ([OWN, OLD], OLD, OWN),
        ([OWN], NEW, OWN),
        ([OWN, NEW], NEW, NEW),
        ([OWN, NEW], "", ""),
        ([OWN], OWN, OWN),
    ],
    ids=["first", "no row yet", "upgrade", "newer is gone", "newer runs", "not ours", "again"],
)
async def test_the_newest_build_that_runs_is_made_current(
    live: list[str], current: str, after: str
) -> None:
    server = Deployment(current)
    how = await versions(server, *live).begin()
    assert how is not None
    assert (how.version.deployment_name, how.version.build_id) == ("mitosis", OWN)
    assert server.current == after
    assert len(server.calls) == (current != after), "nothing is set twice"


@pytest.mark.parametrize(
    ("live", "current", "after"),
    [
        ([OWN], OWN, ""),
        ([OWN, OLD], OWN, OLD),
        ([OWN, OWN], OWN, OWN),
        ([OLD, OWN, NEW], NEW, NEW),
        ([OLD, OWN], NEW, NEW),
        ([], OWN, ""),
    ],
    ids=["last of all", "to an older one", "same build", "newer runs", "not ours", "row is gone"],
)
async def test_the_last_process_of_a_build_hands_over(
    live: list[str], current: str, after: str
) -> None:
    server = Deployment(current)
    await versions(server, *live).hand_over()
    assert server.current == after


@pytest.mark.parametrize(
    "status", [RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.PERMISSION_DENIED], ids=lambda s: s.name
)
async def test_a_server_that_does_not_let_us_choose_gets_workers_without_a_version(
    status: RPCStatusCode,
) -> None:
    server = Deployment(refuses=status)
    refused = versions(server, OWN)
    assert await refused.begin() is None
    server.refuses = None
    await refused.ensure()
    await refused.hand_over()
    assert server.calls == [], "nor is it asked again"


async def test_a_server_that_does_not_answer_is_asked_again_by_the_next_session() -> None:
    with pytest.raises(RPCError):
        await versions(Deployment(refuses=RPCStatusCode.UNAVAILABLE), OWN).begin()


async def test_without_postgresql_nothing_is_chosen_and_the_end_does_not_fail() -> None:
    server = Deployment(NEW)
    unknown = Versions(server, Builds(None))  # type: ignore[arg-type]
    how = await unknown.begin()
    assert how is not None
    assert how.version.build_id == OWN
    await unknown.hand_over()
    assert server.calls == []

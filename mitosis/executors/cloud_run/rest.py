"""The calls of Cloud Run Jobs, REST v2, that the executor makes.

Source: Cloud Run Admin API reference, v2, projects.locations.jobs.run and .executions.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx2

from mitosis.contracts.errors import Unavailable
from mitosis.executors.cloud_run.limiter import Limiter
from mitosis.executors.cloud_run.tokens import TokenSource
from mitosis.retry_policy import RetryPolicy, retrying

KEY = "MITOSIS_EXECUTION_KEY"
"""Environment variable of an execution: the attempt for which it was started."""
UNAUTHORIZED, NOT_FOUND, TOO_MANY, SERVER_ERROR = 401, 404, 429, 500
PAGE = 100
POLICY = RetryPolicy(first_seconds=0.2, longest_seconds=20.0)
"""For calls that may be repeated."""


class Exhausted(Exception):
    """The quota is used up: nothing was started."""


class Refused(Exception):
    """The service refuses the call; repeating it would not help."""


class Gone(Refused):
    """There is no such execution or job."""


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution of a job, as far as the executor reads it."""

    name: str
    key: str | None
    """For which attempt it was started; None: not by us."""
    is_over: bool
    succeeded: bool
    message: str
    created_at: datetime | None
    fraction: float
    running: int
    log_uri: str


@dataclass(slots=True)
class CloudRun:
    """The service, for all attempts of a process."""

    client: httpx2.AsyncClient
    endpoint: str
    tokens: TokenSource
    limiter: Limiter

    async def run(self, job: str, variables: Mapping[str, str], timeout: float | None) -> str:
        """Start an execution once; return its name.

        Raises:
            Unavailable: no answer: it may have been started, or will be.
            Exhausted, Refused: it was not started.
        """
        env = [{"name": name, "value": value} for name, value in variables.items()]
        overrides: dict[str, Any] = {"containerOverrides": [{"env": env}]}
        if timeout is not None:
            overrides["timeout"] = f"{timeout:g}s"
        answer = await self._call("POST", f"{job}:run", {"overrides": overrides})
        try:
            return str(answer["metadata"]["name"])
        except (KeyError, TypeError):
            raise Unavailable(f"{job}:run was answered without the name of an execution") from None

    async def execution(self, name: str) -> Execution:
        """Return an execution, as soon as the service answers.

        Raises:
            Gone: there is none.
            Refused: there is no right to read it.
        """
        return execution_of(await self._repeated("GET", name))

    async def cancel(self, name: str) -> None:
        """Cancel an execution, as soon as the service answers.

        Raises:
            Gone: there is none.
            Refused: it is over, or there is no right to cancel it.
        """
        await self._repeated("POST", f"{name}:cancel")

    async def exit_code(self, name: str) -> int | None:
        """Return the exit status of the first task of an execution that failed; None if it has none.

        Raises:
            Refused: there is no right to read it, or no such execution.
        """
        answer = await self._repeated("GET", f"{name}/tasks")
        for task in answer.get("tasks", ()):
            code = task.get("lastAttemptResult", {}).get("exitCode")
            if code:
                return int(code)
        return None

    async def executions(self, job: str, since: datetime) -> AsyncIterator[Execution]:
        """Yield the executions of a job created since then, the last one first."""
        token = ""
        while True:
            query = f"?pageSize={PAGE}" + (f"&pageToken={token}" if token else "")
            answer = await self._repeated("GET", f"{job}/executions{query}")
            for one in answer.get("executions", ()):
                found = execution_of(one)
                if found.created_at is not None and found.created_at < since:
                    return
                yield found
            token = answer.get("nextPageToken", "")
            if not token:
                return

    async def _repeated(self, method: str, path: str) -> dict[str, Any]:
        return await retrying(lambda: self._call(method, path, None), POLICY)

    async def _call(self, method: str, path: str, body: object) -> dict[str, Any]:
        answer = await self._sent(method, path, body)
        if answer.status_code == UNAUTHORIZED:  # once more, with a new token
            answer = await self._sent(method, path, body)
        if answer.status_code == TOO_MANY and path.endswith(":run"):
            raise Exhausted(f"Cloud Run refuses {path} for now: {_reason(answer)}")
        if answer.status_code == TOO_MANY or answer.status_code >= SERVER_ERROR:
            raise Unavailable(
                f"Cloud Run answers {path} with {answer.status_code}: {_reason(answer)}",
                retry_after_seconds=_seconds(answer.headers.get("Retry-After")),
            )
        if answer.status_code == NOT_FOUND:
            raise Gone(f"{path}: {_reason(answer)}")
        if not answer.is_success:
            raise Refused(f"{path}: {answer.status_code} {_reason(answer)}")
        try:
            found: dict[str, Any] = answer.json()
        except ValueError:
            raise Unavailable(f"{path} was answered without JSON") from None
        return found

    async def _sent(self, method: str, path: str, body: object) -> httpx2.Response:
        await self.limiter.wait()
        token = ""
        try:
            token = await self.tokens.token()
            answer = await self.client.request(
                method,
                f"{self.endpoint}/v2/{path}",
                json=body if method == "POST" else None,
                headers={"Authorization": f"Bearer {token}"},
            )
        except (httpx2.HTTPError, KeyError, ValueError) as error:
            what = "no token" if not token else f"no answer to {path}"
            raise Unavailable(f"{what}: {str(error) or type(error).__name__}") from None
        if answer.status_code == UNAUTHORIZED:
            self.tokens.refused(token)
        return answer


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None


def _reason(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.reason_phrase


def execution_of(fields: Mapping[str, Any]) -> Execution:
    """Return what the executor reads of an execution."""
    ended: Mapping[str, Any] = next(
        (c for c in fields.get("conditions", ()) if c.get("type") == "Completed"), {}
    )
    env = _first_container(fields).get("env", ())
    count = int(fields.get("taskCount", 1)) or 1
    done = int(fields.get("succeededCount", 0))
    is_over = bool(fields.get("completionTime")) or ended.get("state") == "CONDITION_FAILED"
    created = fields.get("createTime")
    return Execution(
        name=str(fields["name"]),
        key=next((e.get("value") for e in env if e.get("name") == KEY), None),
        is_over=is_over,
        succeeded=is_over and done >= count,
        message=str(ended.get("message", "")),
        created_at=None if created is None else datetime.fromisoformat(created),
        fraction=min(1.0, done / count),
        running=int(fields.get("runningCount", 0)),
        log_uri=str(fields.get("logUri", "")),
    )


def _first_container(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    containers = fields.get("template", {}).get("containers", ())
    return containers[0] if containers else {}


def jittered(seconds: float) -> float:
    """Return a pause of about so long, so that many executors do not poll at the same time."""
    most = 1.25 * seconds
    return RetryPolicy(first_seconds=most, longest_seconds=most, jitter=0.4).pause(0)

"""An agent as a process: ``python -m tests.support.run_agent``, its config as JSON on standard input."""

import json
import sys
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from manager_agent import agent, process
from manager_agent.agent import AgentConfig
from manager_agent.process import serve
from mitosis.execution import identity, session
from mitosis.telemetry import configure_logging


def main() -> None:
    given = json.load(sys.stdin)
    configure_logging("INFO", "json")
    if "ends_within_seconds" in given:
        process.ENDS_WITHIN_SECONDS = given["ends_within_seconds"]
    if "look_seconds" in given:
        vars(session)["LOOK_SECONDS"] = given["look_seconds"]
    if "machine_id" in given:
        _on_another_machine(given["machine_id"])
    serve(
        AgentConfig(
            api_url=given["api_url"],
            manager_id=UUID(given["manager_id"]),
            token=given["token"],
            temporal_address=given["temporal_address"],
            state_dir=Path(given["state_dir"]),
            run_parent=Path(given["run_parent"]),
            drain=timedelta(seconds=given.get("drain_seconds", 20)),
            stop_grace=timedelta(seconds=given.get("stop_grace_seconds", 4)),
            renew_seconds=given.get("renew_seconds", 0.2),
        )
    )


def _on_another_machine(machine_id: str) -> None:
    """Another /etc/machine-id, and none of the processes that run here."""
    identity.machine_id = lambda state_dir: machine_id
    vars(agent)["kill_leftovers"] = lambda manager_id, prepared=(): 0


if __name__ == "__main__":
    main()

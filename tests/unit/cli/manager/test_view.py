"""How managers are shown."""

from mitosis.cli.manager.view import manager_item, managers_table
from mitosis.contracts.http import ManagerInfo
from mitosis.contracts.lifecycle import EnvironmentState, ManagerState
from tests.support.infos import ID, LEASE, NOON


def test_managers_show_what_they_work_for() -> None:
    one = ManagerInfo(
        manager_id=ID,
        name="host-1",
        state=ManagerState.EXECUTING,
        tags=["gpu"],
        labels=[],
        groups=["ann:write"],
        cores=[0, 1],
        lease=LEASE,
        environments={"squares": EnvironmentState.READY},
        created_at=NOON,
    )
    assert managers_table([one]).rows[0][:5] == ("host-1", "executing", "squares", "2", "gpu")
    shown = dict(manager_item(one).fields)
    assert shown["lease"] == "squares, active, epoch 9"
    assert shown["environment"] == "squares: ready"

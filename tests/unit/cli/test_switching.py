"""How the costs of switches are shown."""

from mitosis.cli.manager.view import manager_item, switching_table
from mitosis.cli.switching import switching_text
from mitosis.contracts.http import ManagerInfo
from mitosis.contracts.lifecycle import ManagerState
from mitosis.contracts.switching import SwitchingCosts
from tests.support.infos import ID, NOON

COSTS = SwitchingCosts(
    setups=3,
    setup_seconds=3600.0,
    teardowns=2,
    teardown_seconds=900.0,
    drains=1,
    drain_seconds=450.0,
    lost_seconds=4950.0,
    returns=5,
    saved_seconds=6000.0,
)
TEXT = (
    "1.38 h lost (3 setups 1.00 h, 2 teardowns 0.25 h, 1 drains 0.12 h), 1.67 h saved by 5 returns"
)


def manager(costs: SwitchingCosts | None) -> ManagerInfo:
    return ManagerInfo(
        manager_id=ID,
        name="h1",
        state=ManagerState.IDLE,
        tags=[],
        labels=[],
        groups=[],
        cores=[],
        created_at=NOON,
        switching=costs,
    )


def test_costs_are_one_line_of_a_host_that_has_switched() -> None:
    assert dict(manager_item(manager(COSTS)).fields)["switching"] == TEXT
    for none in (None, SwitchingCosts()):
        assert switching_text(none) == ""
        assert "switching" not in dict(manager_item(manager(none)).fields)


def test_the_table_ends_with_the_sums_of_all_hosts() -> None:
    table = switching_table([manager(COSTS), manager(COSTS), manager(None)])
    assert table.rows[0] == ("h1", "1.38 h", "1.00 h", "0.25 h", "0.12 h", "1.67 h", "5")
    assert table.rows[-1] == ("all hosts", "2.75 h", "2.00 h", "0.50 h", "0.25 h", "3.33 h", "10")
    assert len(table.rows) == 3
    assert isinstance(table.data, list)
    assert table.data[-1]["lost_seconds"] == 9900.0
    assert switching_table([]).rows == []

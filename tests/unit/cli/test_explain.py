"""How the reasons of hosts are shown."""

from uuid import UUID

from mitosis.cli.explain import explanation_item
from mitosis.contracts.explain import Explanation, HostReason
from tests.support.infos import ID


def test_hosts_of_one_name_are_told_apart_by_their_ids() -> None:
    hosts = [
        HostReason(manager_id=UUID(int=number), manager_name=name, code="busy", line="is busy")
        for number, name in ((1, "vm"), (2, "big"), (3, "vm"))
    ]
    item = explanation_item(
        Explanation(
            task_group_id=ID,
            task_group_name="squares",
            state="open",
            waits=True,
            code="busy",
            line="all are busy",
            hosts=tuple(hosts),
        )
    )
    assert [text for label, text in item.fields if label == "host"] == [
        f"vm ({UUID(int=1)}): is busy",
        "big: is busy",
        f"vm ({UUID(int=3)}): is busy",
    ]

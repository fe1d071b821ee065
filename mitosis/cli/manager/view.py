"""Tables and details of hosts. Pure functions of the API's answers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mitosis.cli.rendering import Item, Table, time_text
from mitosis.cli.switching import hours_text, switching_text, switching_total

if TYPE_CHECKING:
    from mitosis.contracts.explain import HostExplanation
    from mitosis.contracts.http import ManagerInfo


def managers_table(managers: "Sequence[ManagerInfo]") -> Table:
    rows = [
        (
            one.name,
            str(one.state),
            one.lease.task_group_name if one.lease else "",
            str(len(one.cores)),
            ", ".join(one.tags),
            time_text(one.last_contact_at),
            str(one.manager_id),
        )
        for one in managers
    ]
    return Table(
        data=[one.model_dump(mode="json") for one in managers],
        columns=("host", "state", "works for", "cores", "tags", "last contact", "id"),
        rows=rows,
        ids=[str(one.manager_id) for one in managers],
        empty="no hosts (start one with: mitosis agent)",
    )


def manager_item(one: "ManagerInfo") -> Item:
    lease = one.lease
    fields = [
        ("host", one.name),
        ("id", str(one.manager_id)),
        ("state", str(one.state)),
        *drain_fields(one),
        ("host name", one.host_name or ""),
        ("agent", one.agent_version or ""),
        ("cores", ", ".join(map(str, one.cores))),
        ("tags", ", ".join(one.tags)),
        ("labels", ", ".join(one.labels)),
        ("works for", ", ".join(one.groups)),
        ("lease", f"{lease.task_group_name}, {lease.state}, epoch {lease.epoch}" if lease else ""),
        *[("environment", f"{name}: {state}") for name, state in one.environments.items()],
        *[("owes", f"teardown of {name}: {why}") for name, why in one.debts.items()],
        *[("failure", f"{failure.task_group_name}: {failure.line}") for failure in one.failures],
        ("switching", switching_text(one.switching)),
        ("trouble", one.report_trouble or ""),
        ("last contact", time_text(one.last_contact_at)),
        ("registered", time_text(one.created_at)),
    ]
    shown = [(label, text) for label, text in fields if text]
    return Item(one.model_dump(mode="json"), shown, str(one.manager_id))


def drain_fields(one: "ManagerInfo") -> list[tuple[str, str]]:
    """Return what is shown of a drain; none if the host is in service."""
    if one.drain is None:
        return []
    done = "empty" if one.drain.empty else "; ".join(one.drain.waits_for)
    return [
        ("drained since", time_text(one.drain.since)),
        ("drained because", one.drain.reason or ""),
        ("drain waits for" if not one.drain.empty else "drain", done),
    ]


def lifted_item(host_name: str, label: str, task_groups: Sequence[str]) -> Item:
    """Return the task groups for which a host is tried again."""
    data = {"host": host_name, "task_groups": [*task_groups]}
    shown = [("host", host_name), (label, ", ".join(task_groups) or "no task group")]
    return Item(data, shown, "\n".join(task_groups))


def explained_item(explanation: "HostExplanation") -> Item:
    """Return what the host does first, then one line for each task group with work."""
    change = [("change", explanation.change)] if explanation.change else []
    state = [("state", str(explanation.state))] if explanation.state else []
    groups = [
        ("task group", f"{group.task_group_name}: {group.line}") for group in explanation.groups
    ]
    more = [("more", f"{explanation.more_groups} task groups")] if explanation.more_groups else []
    fields = [("why", explanation.line), *change, ("of", explanation.manager_name), *state]
    return Item(explanation.model_dump(mode="json"), [*fields, *groups, *more], explanation.code)


def switching_table(managers: "Sequence[ManagerInfo]") -> Table:
    """Return what switches have cost and saved on each host, the sums of all in the last row."""
    known = [(one.name, str(one.manager_id), one.switching) for one in managers if one.switching]
    total = ("all hosts", "", switching_total([costs for _, _, costs in known]))
    lines = [*known, total] if known else []
    rows = [
        (
            name,
            hours_text(costs.lost_seconds),
            hours_text(costs.setup_seconds),
            hours_text(costs.teardown_seconds),
            hours_text(costs.drain_seconds),
            hours_text(costs.saved_seconds),
            str(costs.returns),
        )
        for name, _, costs in lines
    ]
    data = [
        {"host": name, "manager_id": identifier or None, **costs.model_dump(mode="json")}
        for name, identifier, costs in lines
    ]
    return Table(
        data=data,
        columns=("host", "lost", "setups", "teardowns", "drains", "saved", "returns"),
        rows=rows,
        ids=[identifier for _, identifier, _ in known],
        empty="no hosts (start one with: mitosis agent)",
    )

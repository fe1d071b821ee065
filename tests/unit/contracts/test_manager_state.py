"""The state of a host has one owner: every reader of the same facts shows the same state."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis.contracts.lifecycle import EnvironmentState, LeaseState, ManagerState
from mitosis.contracts.manager_state import ManagerFacts, derived_manager_state
from mitosis.store.managers.views import ObservedManager, ShownManager
from mitosis.store.pg.rows import to_record
from workflows.visibility import manager_attributes, manager_details

GROUP, OTHER, HOST = UUID(int=1), UUID(int=2), UUID(int=3)


def facts(**given: Any) -> ManagerFacts:
    return ManagerFacts(
        **{
            "offline": False,
            "silent_seconds": 1.0,
            "host_lost_after_seconds": 90.0,
            "draining": False,
            **given,
        }
    )


WORKS = {
    "lease_state": LeaseState.ACTIVE,
    "alive_in_seconds": 60.0,
    "lease_environment": EnvironmentState.READY,
}
STATES: dict[str, tuple[ManagerState, ManagerFacts]] = {
    "no lease": (ManagerState.IDLE, facts()),
    "suspect, not lost": (ManagerState.IDLE, facts(silent_seconds=40.0)),
    "said goodbye": (ManagerState.OFFLINE, facts(offline=True)),
    "never in contact": (ManagerState.OFFLINE, facts(silent_seconds=None)),
    "silent without a lease": (ManagerState.OFFLINE, facts(silent_seconds=90.0)),
    "lost, lease not released": (ManagerState.OFFLINE, facts(**WORKS | {"alive_in_seconds": 0.0})),
    "lost by the clock of its group": (
        ManagerState.OFFLINE,
        facts(**WORKS | {"alive_in_seconds": -1.0}, silent_seconds=11.0),
    ),
    "alive by the clock of its group": (
        ManagerState.EXECUTING,
        facts(**WORKS | {"alive_in_seconds": 200.0}, silent_seconds=100.0),
    ),
    "draining, runs tasks": (ManagerState.DRAINING, facts(**WORKS, draining=True)),
    "draining, idle": (ManagerState.DRAINING, facts(draining=True)),
    "draining, lost": (ManagerState.OFFLINE, facts(draining=True, offline=True)),
    "tears down": (ManagerState.CLEANUP, facts(tearing_down=True)),
    "tears down one group, offered another": (
        ManagerState.CLEANUP,
        facts(tearing_down=True, lease_state=LeaseState.OFFERED),
    ),
    "works": (ManagerState.EXECUTING, facts(**WORKS)),
    "works, lease is ending": (
        ManagerState.EXECUTING,
        facts(**WORKS | {"lease_state": LeaseState.ENDING}),
    ),
    "offered": (ManagerState.PREPARING, facts(lease_state=LeaseState.OFFERED)),
    "offered, environment still ready": (
        ManagerState.PREPARING,
        facts(lease_state=LeaseState.OFFERED, lease_environment=EnvironmentState.READY),
    ),
    "in setup": (
        ManagerState.PREPARING,
        facts(**WORKS | {"lease_environment": EnvironmentState.PREPARING}),
    ),
}


@pytest.mark.parametrize(("state", "known"), STATES.values(), ids=STATES.keys())
def test_the_first_rule_that_holds_is_the_state(state: ManagerState, known: ManagerFacts) -> None:
    assert derived_manager_state(known) is state


def test_every_state_has_a_case() -> None:
    assert {state for state, _ in STATES.values()} == set(ManagerState)


def rows(known: ManagerFacts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the rows of ``observe`` and ``show`` that PostgreSQL answers for these facts."""
    environments = [
        (GROUP, known.lease_environment),
        (OTHER, EnvironmentState.TEARING_DOWN if known.tearing_down else None),
    ]
    standing = {group: str(state) for group, state in environments if state not in (None, "gone")}
    common = {"manager_id": HOST, "name": "host-1", "facts": asdict(known)}
    lease = None
    if known.lease_state is not None:
        lease = {"epoch": 7, "state": str(known.lease_state), "task_group_id": str(GROUP)}
    silent = known.silent_seconds is None or known.silent_seconds > 10
    observed = {
        **common,
        "online": not known.offline and not silent,
        "lost_in_seconds": None,
        "lease": lease
        and {**lease, "group_state": "open", "alive_in_seconds": known.alive_in_seconds},
        "environments": [{"task_group_id": str(g), "state": s} for g, s in standing.items()],
    }
    now = datetime.now(UTC)
    held = {"manager_id": str(HOST), "manager_name": "host-1", "offered_at": now, "taken_at": None}
    shown = {
        **common,
        "tags": [],
        "labels": [],
        "groups": [],
        "host_name": "host-1",
        "cores": [0],
        "created_at": now,
        "last_contact_at": None,
        "drain_facts": None,
        "lease": lease and {**lease, **held, "task_group_name": "a", "alive_until": None},
        "environments": {str(group): state for group, state in standing.items()},
        "failures": [],
    }
    return observed, shown


seconds = st.floats(-1000, 1000)
any_facts = st.builds(
    ManagerFacts,
    offline=st.booleans(),
    silent_seconds=st.none() | seconds,
    host_lost_after_seconds=st.floats(10, 1000),
    draining=st.booleans(),
    lease_state=st.none() | st.sampled_from([s for s in LeaseState if s is not LeaseState.ENDED]),
    alive_in_seconds=st.none() | seconds,
    lease_environment=st.none() | st.sampled_from(EnvironmentState),
    tearing_down=st.booleans(),
)


@given(any_facts)
def test_every_reader_shows_the_same_state(known: ManagerFacts) -> None:
    observed, shown = rows(known)
    view = to_record(observed, ObservedManager)
    state = derived_manager_state(known)
    assert manager_attributes(view)["MitosisState"] == state
    assert f"**host-1** is **{state}**." in manager_details(
        view, "idle", datetime(2026, 5, 4, tzinfo=UTC)
    )
    assert to_record(shown, ShownManager).state is state

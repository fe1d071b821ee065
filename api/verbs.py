"""Applies verbs through the task group's workflow, or in PostgreSQL while Temporal is unavailable."""

import logging
from uuid import UUID

from api.app_state import AppState, Verb
from mitosis.contracts.control import VerbRequest
from mitosis.contracts.errors import TemporalUnavailable
from mitosis.contracts.http import TaskGroupInfo
from mitosis.store.groups import endings
from mitosis.store.groups.views import read_group

log = logging.getLogger(__name__)


async def apply_verb(state: AppState, task_group_id: UUID, verb: Verb) -> TaskGroupInfo:
    """Apply a verb and return the group after it.

    Both use the same compare-and-set. A verb ensures a state, so one that the workflow applied before its
    answer was lost succeeds again. The outbox notifies the workflow.

    Raises:
        InvalidTransition: the state of the group does not allow it.
    """
    try:
        await state.control.execute_verb(task_group_id, verb)
    except TemporalUnavailable:
        log.info("verb.without_temporal", extra={"verb": verb.kind, "group": str(task_group_id)})
        await endings.apply(state.store, VerbRequest(task_group_id=task_group_id, verb=verb))
    return await read_group(state.store, task_group_id)

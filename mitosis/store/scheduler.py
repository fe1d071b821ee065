"""The assignment round: one transaction that matches idle managers to groups and writes offers."""

from mitosis.contracts.control import AssignAnswer
from mitosis.store.database import Database


class SchedulerStore:
    """Implements ``activities.managers.SchedulerPort``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def assign_round(self) -> AssignAnswer:
        """Offer leases, poke the managers of every open offer, say when to look again."""
        raise NotImplementedError

"""Texts about the host time that switches have cost, and that kept environments have saved."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mitosis.contracts.switching import SwitchingCosts


def switching_text(costs: "SwitchingCosts | None") -> str:
    """Return ``0.50 h lost (3 setups 0.40 h, …), 1.20 h saved by 5 returns``; empty without a switch."""
    if costs is None or not (costs.setups or costs.teardowns or costs.drains or costs.returns):
        return ""
    parts = [
        f"{count} {name} {hours_text(seconds)}"
        for name, count, seconds in (
            ("setups", costs.setups, costs.setup_seconds),
            ("teardowns", costs.teardowns, costs.teardown_seconds),
            ("drains", costs.drains, costs.drain_seconds),
        )
    ]
    lost = f"{hours_text(costs.lost_seconds)} lost ({', '.join(parts)})"
    return f"{lost}, {hours_text(costs.saved_seconds)} saved by {costs.returns} returns"


def switching_total(costs: "Sequence[SwitchingCosts]") -> "SwitchingCosts":
    """Return the sums over several hosts."""
    from mitosis.contracts.switching import SwitchingCosts

    fields = SwitchingCosts.model_fields
    return SwitchingCosts(**{name: sum(getattr(one, name) for one in costs) for name in fields})


def hours_text(seconds: float) -> str:
    """Return hours with two digits, as in ``1.25 h``."""
    return f"{seconds / 3600:.2f} h"

"""How many random examples a property is tried with: few in the suite, many in a campaign."""

import os

CAMPAIGN = int(os.environ.get("MITOSIS_CAMPAIGN_EXAMPLES", "0"))
"""Set by the targets ``make campaign-…``; 0 in the suite."""


def examples(usual: int) -> int:
    """Return ``usual``, or the number of examples of the campaign that runs."""
    return CAMPAIGN or usual

"""How much faster several GPUs are than one, or many than several."""

from __future__ import annotations

import math

_STATED_GPUS = 8  # the number of GPUs that the scaling efficiency is stated for


def scaling_gain(n_from: int, n_to: int, scaling: float) -> float:
    """Return how much faster ``n_to`` GPUs are than ``n_from`` of the same kind.

    The power law of the numbers at which eight GPUs do 8 × ``scaling`` times what one does: (to / from) ** (1 + log₈
    scaling). So as many GPUs as here gain nothing and lose nothing, two are 95% efficient at the default of 85%.
    """
    return float((n_to / n_from) ** (1 + math.log(scaling, _STATED_GPUS)))

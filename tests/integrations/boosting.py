"""A boosted training on two hundred rows whose rounds and evaluations take a time that a clock moved by hand has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

ROUNDS, ROUND_S, EVALUATION_S = 6, 2.0, 0.5
X = np.random.default_rng(0).random((200, 5))
Y = X.sum(axis=1)


def squared_error(pass_s: Callable[[float], None]) -> Callable[[Any, Any], Any]:
    """Return the squared error as an objective of XGBoost and LightGBM, whose every round takes so long."""

    def objective(predicted: Any, target: Any) -> Any:
        pass_s(ROUND_S)
        return predicted - target.get_label(), np.ones_like(predicted)

    return objective


def mean_error(pass_s: Callable[[float], None]) -> Callable[[Any, Any], tuple[str, float]]:
    """Return the mean error as a metric, which takes so long."""

    def metric(predicted: Any, target: Any) -> tuple[str, float]:
        pass_s(EVALUATION_S)
        return "error", float(np.mean(np.abs(predicted - target.get_label())))

    return metric

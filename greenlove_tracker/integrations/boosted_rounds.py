"""The boosting rounds of XGBoost and LightGBM: each is a step, and a training is one epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from greenlove_tracker.integrations.training_adapter import TrainingAdapter, harmless


class BoostedRounds:
    """Drive an adapter by the rounds of a training.

    Args:
        adapter: the adapter of the library's callback.
    """

    def __init__(self, adapter: TrainingAdapter) -> None:
        self._adapter = adapter
        self._is_in_round = False

    @harmless
    def begin(self, plan: Mapping[str, Any]) -> None:
        """Begin a training of this length."""
        self._is_in_round = False
        self._adapter.begin(plan)

    @harmless
    def begin_round(self) -> None:
        """Begin a round; the first one begins the epoch."""
        self._is_in_round = True
        self._adapter.start_epoch()

    @harmless
    def end_round(self, metrics: Iterable[tuple[str, Any, bool | None]]) -> None:
        """Count a round, and log what was evaluated after it."""
        self._is_in_round = False
        self._adapter.step()
        self._adapter.log_metrics_of_step(list(metrics))

    @harmless
    def end(self) -> None:
        """End the training, if it has not ended."""
        if self._is_in_round:  # a callback before ours stopped the training after the round
            self._is_in_round = False
            self._adapter.step()
        if not self._adapter.is_stopping:
            self._adapter.end_epoch()
        self._adapter.finish()

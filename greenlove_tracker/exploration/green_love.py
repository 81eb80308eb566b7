"""The schedule of the original green-love, as its README documents it: for those who want it, and as the baseline.

1. *Search*, from n = 1000 samples: an attempt of 30 epochs is interrupted between batches after 0.3 s. With no epoch
   done, n becomes n / 10; with 1 to 29 done, n times so many is the representative size; with all done, n becomes
   n · 10 / (their time in s); the first and the last try again.
2. *Runs* of 30 epochs each: at the representative n, then at n · 1.5, n · 1.5² … until one takes more than 20 s, then
   at n / 1.5, n / 1.5² … until one takes less than 1 s; all rounded down.

How it is read where the text leaves a choice:

- The 0.3 s (``single_epoch_budget``) are of the attempt, not of each epoch. Then the rules agree with one another: c
  epochs in 0.3 s make an epoch of c · n samples 0.3 s long and 30 of them 9 s, near the target of 10 s. With 0.3 s for
  each epoch, a size that reaches the target has epochs of 0.33 s, and is thrown back to a tenth.
- "Its epoch times already saved": an attempt is not one of the runs, since the representative n is run for the first
  time after the search. The attempts count as trials only where no run has a whole epoch.
- 20 s are twice ``target_benchmark_time``. A representative run that is past 20 s, or below 1 s, is itself the one that
  ends that direction.
- n never exceeds the data and never falls below one batch, under which no fewer batches can run. Where it cannot change
  the search is over; after fifteen attempts too, as in the package.
- "Under 90 seconds" is stated there and not kept; here it is the deadline of every request, so it is overrun by a step
  at most.
- The three warm-up epochs change nothing here: ``extrapolate(method="green-love")`` keeps them apart.
"""

from __future__ import annotations

import math
from collections.abc import Generator

from greenlove_tracker.errors import UsageError
from greenlove_tracker.exploration.scheduler import Scheduler, TrialRequest, TrialResult
from greenlove_tracker.forecasting import Trial

BOUND_S = 90.0  # "Maximum Runtime Bound" of its README
_MOST_ATTEMPTS = 15  # max_retries in green-love 0.2.2
_SHRINK, _STEP = 10, 1.5  # its README, "Choosing a Representative Sample Size" and "Sampling Strategy"
_LONG_TARGETS, _SHORT_S = 2.0, 1.0  # 20 s = 2 × target_benchmark_time, and 1 s; the same
_SEARCH, _RUN = "search", "run"

_Script = Generator[tuple[int, str], TrialResult, None]


class GreenLoveScheduler(Scheduler):
    """Chooses trials as green-love does.

    Args:
        samples: of the data.
        batch_size: samples of a batch; a sample of n runs as ceil(n / batch_size) batches.
        exploration_epochs: of each run.
        warmup_epochs: of each run, which its formulas keep apart.
        target_benchmark_time: what the representative size's run should take, in s.
        initial_sample_size: where the search begins.
        single_epoch_budget: after how many seconds an attempt of the search is interrupted.
        bound_s: of the whole exploration.
    """

    method = "green-love"

    def __init__(
        self,
        samples: int,
        batch_size: int,
        *,
        exploration_epochs: int = 30,
        warmup_epochs: int = 3,
        target_benchmark_time: float = 10.0,
        initial_sample_size: int = 1000,
        single_epoch_budget: float = 0.3,
        bound_s: float = BOUND_S,
    ) -> None:
        for name, value in (
            ("samples", samples),
            ("batch_size", batch_size),
            ("initial_sample_size", initial_sample_size),
            ("target_benchmark_time", target_benchmark_time),
            ("single_epoch_budget", single_epoch_budget),
            ("bound_s", bound_s),
        ):
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name} must be above zero, not {value!r}")
        if warmup_epochs < 0:
            raise UsageError(f"warmup_epochs must be at least 0, not {warmup_epochs!r}")
        if exploration_epochs <= warmup_epochs:
            raise UsageError(f"exploration_epochs must be more than the {warmup_epochs} that are warm-up")
        self.warmup_epochs = warmup_epochs
        super().__init__()
        self._samples, self._batch_size, self._epochs = samples, batch_size, exploration_epochs
        self._target_s, self._attempt_s, self._bound_s = target_benchmark_time, single_epoch_budget, bound_s
        self._script = self._search_and_run(min(initial_sample_size, samples))

    def trials(self, batch_size: int) -> tuple[Trial, ...]:
        """Return the whole epochs of the runs, or of the search where no run has any."""
        whole = [r for r in self.results if r.epoch_durations_s]
        runs = [r for r in whole if r.request.purpose == _RUN] or whole
        return tuple(Trial(r.request.samples or 1, batch_size, r.epoch_durations_s, r.energy_kwh) for r in runs)

    def next(self, spent_s: float, *, relative_width: float | None = None) -> TrialRequest | None:
        """Take the next step of the search or the runs; green-love does not stop early, however narrow."""
        remaining_s = self._bound_s - spent_s
        if remaining_s <= 0:
            return None
        try:
            size, purpose = self._script.send(self.results[-1]) if self.results else next(self._script)
        except StopIteration:
            return None
        deadline_s = min(remaining_s, self._attempt_s) if purpose == _SEARCH else remaining_s
        expected_s = min(deadline_s, self._expected_s(size))
        batches = -(-size // self._batch_size)
        return TrialRequest(batches, self._epochs, deadline_s, expected_s, purpose, samples=size)

    def _expected_s(self, size: int) -> float:
        """Scale the last trial that had a whole epoch in proportion to its samples, as green-love supposes it."""
        for result in reversed(self.results):
            if result.typical and result.epoch_durations_s:
                return self._epochs * result.typical[1] * size / (result.request.samples or size)
        return math.inf

    def _search_and_run(self, size: int) -> _Script:
        for _ in range(_MOST_ATTEMPTS):
            result = yield size, _SEARCH
            next_size = self._next_size(size, result)
            is_over = next_size == size or 0 < len(result.epoch_durations_s) < self._epochs
            size = next_size
            if is_over:
                break
        first_s = (yield size, _RUN).timed_s
        yield from self._larger(size, first_s)
        yield from self._smaller(size, first_s)

    def _next_size(self, size: int, result: TrialResult) -> int:
        """Return the size that follows in the search: no epoch was done, some were, or all."""
        done = len(result.epoch_durations_s)
        if done == 0:
            next_size = size // _SHRINK
        elif done < self._epochs:
            next_size = size * done
        else:
            next_size = int(size * self._target_s / result.timed_s)
        return max(min(self._batch_size, self._samples), min(self._samples, next_size))

    def _larger(self, first: int, took_s: float) -> _Script:
        power, last = 1, first
        while took_s <= _LONG_TARGETS * self._target_s and (size := int(first * _STEP**power)) <= self._samples:
            power += 1
            if size > last:  # one sample times 1.5 is one sample
                took_s, last = (yield size, _RUN).timed_s, size

    def _smaller(self, first: int, took_s: float) -> _Script:
        power = 1
        while took_s >= _SHORT_S and (size := int(first / _STEP**power)) >= min(self._batch_size, self._samples):
            power += 1
            took_s = (yield size, _RUN).timed_s

"""Forecast a run while it goes on, from its rows and from an earlier exploration of the same training."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Protocol, TypeVar, runtime_checkable

from greenlove_tracker.logs.metrics import metric_name
from greenlove_tracker.logs.tables import FORECASTS, QUANTITIES, IssuedForecast, MetricRecord
from greenlove_tracker.logs.writer import timestamp
from greenlove_tracker.machine.forks import forks_wait
from greenlove_tracker.text.format import plural
from greenlove_tracker.tracker.part import RunPart, RunParts
from greenlove_tracker.tracker.recorder import LOADING_SHARE, StepMark
from greenlove_tracker.vocabulary.errors import UsageError
from greenlove_tracker.vocabulary.forecasting import Block, Forecast, Progress, TrainingPlan, stop_estimate, stop_within
from greenlove_tracker.vocabulary.phases import Plan
from greenlove_tracker.vocabulary.pricing import Rates
from greenlove_tracker.vocabulary.records import Energy, Flag, Row, RowKind
from greenlove_tracker.vocabulary.stopping import ExpectedStop, StoppingRule
from greenlove_tracker.vocabulary.units import w_from_kwh_s

_MAX_TIME_SHARE = 0.02  # of the run's time may be spent on forecasting
_MOST_REST_S = 5.0  # between two forecasts at most, since budgets depend on them
# A new forecast waits until this share of the forecast time, or this share of the elapsed time, has passed: some 600
# forecasts a run. The second limit is for the beginning, when a forecast may be many times too long.
_MIN_PROGRESS_SHARE = 0.002
_MIN_GROWTH = 0.1
_FIRST_ENERGY_S = 5.0  # when the power of a training in steps is first read; later each minute
_MOST_METER_START_S = 20.0  # forecasts no longer wait for a meter that takes longer
_FEWEST_BLOCKS = 128  # epochs are joined down to about this many, so that a forecast costs the same at any length
_LEAST_POWER_S = 1.0  # the least time for a mean power: a reading may include 50 ms of the time before
_LEAST_STEPPED_S = 10.0  # steps of the open first epoch are used once they cover this much time
# One or two epochs say little about how much epochs vary. The steps of the first epoch say more, so it is split into
# this many parts. On recorded GPU runs that makes the interval after one epoch 2 to 9% wide, instead of 67 to 97%.
_PARTS = 8
_MOST_EPOCHS_BESIDE_PARTS = 2

_Item = TypeVar("_Item")


class RunForecaster(RunPart):
    """Forecast one run; the first rank forecasts for all ranks.

    Args:
        run: the parts of the run.
    """

    def __init__(self, run: RunParts) -> None:
        super().__init__(run)
        self._progress = ProgressLog()
        self._rule: StoppingRule | None = None  # early stopping
        self._stop_values: dict[int, float] = {}  # values of the rule's metric, by epoch
        self._lock = threading.Lock()  # one forecast at a time, in the order of their data
        # The progress at the last forecast: epochs or steps done, or the steps of the first epoch.
        self._position_forecast_at = (0, 0, 0)
        self._awaits_gap = False  # the last forecast assumed the end of an epoch, which the next one will have seen
        self._next_s = 0.0  # when the next forecast is due, unless somebody asks before

    def row(self, row: Row) -> None:
        """Add the row to the progress that forecasts use."""
        plan = self._state.plan  # None until a tracker in the script gives it
        self._progress.is_resumed = bool(self._state.settings.continues) or (plan is not None and plan.is_resumed)
        self._progress.add_row(row)

    def metric_logged(self, record: MetricRecord) -> None:
        """Keep the last value of the rule's metric in each epoch."""
        if self._rule is not None and record.epoch is not None and record.name == metric_name(self._rule.metric):
            self._stop_values[record.epoch] = record.value

    def tick(self) -> None:
        """Make a forecast if one is due."""
        self.update(is_asked=False)

    def expect_stop(self, rule: StoppingRule) -> None:
        """Forecast from now on with early stopping by this rule. The run's lock is held."""
        self._rule = rule
        self._stop_values.clear()
        self._run.note(stopping_rule=rule)

    def update(self, *, is_asked: bool = True) -> None:
        """Make a forecast if the run has progressed since the last one.

        Args:
            is_asked: make it even if the last one is recent.
        """
        state = self._state
        recorder = self._recorder
        with self._lock:
            is_meter_starting = recorder.awaits_meter and state.elapsed_s < _MOST_METER_START_S
            if not self._is_wanted() or is_meter_starting:
                return
            self._load()
            with state.lock:
                self._run.tell_rows()  # the forecast covers the rows that are done
                plan = state.plan
                if state.is_finished or plan is None:
                    return
                progress = self._due_progress(plan, is_asked=is_asked)
                if progress is None:
                    return
                elapsed_s = state.elapsed_s
                epochs_done = recorder.epochs_done
                steps_done = recorder.steps_done
                values = dict(self._stop_values)
                rates = state.rates
                gpu_count = state.gpu_count
            progress = replace(
                progress,
                gpu_count=gpu_count,
                phases=plan.phases,
                stop=self._expected_stop(plan, values, epochs_done),
            )
            forecast = self._forecast(progress, rates, elapsed_s)  # without the run's lock, since it takes a while
            with state.lock:
                if self._state.is_finished:  # meanwhile
                    return
                state.forecast = replace(forecast, is_energy_modelled=not state.row_totals.node.measured_kwh)
                stop = forecast.expected_stop
                level = forecast.duration_s.level
                issued = IssuedForecast(
                    issued_at=timestamp(state.started_utc_s + elapsed_s),
                    elapsed_s=elapsed_s,
                    epochs_done=epochs_done,
                    steps_done=steps_done,
                    planned=int(progress.total_units),
                    method=forecast.method,
                    estimates={name: e for name in QUANTITIES if (e := getattr(forecast, name)) is not None},
                    duration_p99_s=forecast.duration_p99_s,
                    warnings=frozenset(warning.name for warning in forecast.warnings),
                    stop_epochs=None if stop is None else stop_estimate(stop, level, before=plan.first_epoch),
                )
                self._writer.write(FORECASTS, issued)
                self._run.tell(lambda part: part.forecast_issued(issued))

    def _is_wanted(self) -> bool:
        state = self._state
        recorder = self._recorder
        if not state.is_first_rank or state.is_training_over or state.settings.epochs_before_pred <= 0:
            return False
        last = recorder.epoch or recorder.last_epoch or 0
        has_ended = state.stopped_early_after is not None and last <= state.stopped_early_after
        return state.plan is not None and bool(state.plan.length) and not has_ended

    def _load(self) -> None:
        """Import the forecasting code, and flag the rows that the import slows down."""
        if _LIVE in sys.modules:
            return
        with self._run.loading(), forks_wait:
            import_module(_LIVE)

    def _due_progress(self, plan: Plan, *, is_asked: bool) -> Progress | None:
        """Return the progress for the next forecast; None if none is due."""
        state = self._state
        recorder = self._recorder
        total = plan.length or 0
        if plan.is_in_epochs:
            done = recorder.epochs_done
        else:
            done = recorder.steps_done
        if done > total:
            state.forecast = None  # it was for another training
        if not plan.is_in_epochs or (self._progress.is_in_first_epoch and recorder.epoch is not None):
            self._progress.add_steps(recorder.step_marks or ())
        if plan.is_in_epochs and not done:
            position = (0, recorder.steps_done, 0)
        else:
            position = (done, int(self._awaits_gap and recorder.epoch is not None), len(self._stop_values))
        is_time = is_asked or state.clock.perf_s() >= self._next_s
        if done >= total or position <= self._position_forecast_at or not is_time:
            return None
        progress = self._progress_of(plan, total)
        if progress is None or not progress.blocks or not (progress.warm_blocks or is_asked):
            return None  # our imports slowed down every epoch so far: wait for one more
        self._position_forecast_at = position
        self._awaits_gap = progress.has_unseen_ends
        return progress

    def _progress_of(self, plan: Plan, total: int) -> Progress | None:
        recorder = self._recorder
        log = self._progress
        log.energy_factor = self._state.energy_factor
        if plan.is_in_epochs and recorder.epochs_done:
            open_gap_s = None if recorder.epoch is None else recorder.gap_before_open_s
            return log.in_epochs(total, open_gap_s)
        steps = plan.steps_per_epoch
        if recorder.step_marks is None or (plan.is_in_epochs and not steps):
            return None
        if recorder.is_metering and not log.has_power and recorder.open_for_s() > _FIRST_ENERGY_S:
            recorder.write_segment()  # else its power would be unknown for a minute
            self._run.tell_rows()
        if not plan.is_in_epochs or not steps:
            return log.in_steps(total)
        begun = max(0.0, plan.first_step / steps - plan.first_epoch)
        progress = log.in_first_epoch(total, steps, begun)
        planned = total if recorder.is_opened_by_step else 1.0
        if progress is None or progress.done_units >= planned:
            return None  # the epoch goes on longer than planned: wait for its end
        return progress

    def _forecast(self, progress: Progress, rates: Rates, elapsed_s: float) -> Forecast:
        """Return the forecast. It takes some 30 ms, with early stopping some 100 ms."""
        from greenlove_tracker.extrapolation.live import forecast_run

        state = self._state
        prior = state.prior
        began_s = state.clock.perf_s()
        if prior is not None:  # the speed of its epochs, whether or not early stopping ends them
            prior = prior.without_stop or prior
        forecast = forecast_run(progress, prior=prior, rates=rates, passed_s=elapsed_s)
        forecast = state.rates_in_force.priced(forecast, rates, state.clock.utc_s(), elapsed_s, progress.gpu_count)
        wait_s = min(_MIN_PROGRESS_SHARE * forecast.duration_s.point, _MIN_GROWTH * state.elapsed_s)
        now_s = state.clock.perf_s()
        self._next_s = now_s + max(min((now_s - began_s) / _MAX_TIME_SHARE, _MOST_REST_S), wait_s)
        return forecast

    def _expected_stop(self, plan: Plan, values: Mapping[int, float], epochs_done: int) -> ExpectedStop | None:
        """Return the epoch at which the rule is expected to end the run; None without a rule or a plan in epochs."""
        from greenlove_tracker.extrapolation.expected_stop import expected_stop  # loaded with live forecasts

        rule = self._rule
        if rule is None or not plan.is_in_epochs or not plan.epochs:
            return None
        known = [values[epoch] for epoch in sorted(values)]
        is_first_unknown = plan.first_epoch >= rule.every
        if is_first_unknown:
            known = []
        whole = plan.first_epoch + plan.epochs
        stop = expected_stop(known, rule, whole, least_epochs=plan.first_epoch + epochs_done)
        if is_first_unknown:
            stop = replace(stop, basis=f"{rule.metric} of the epochs before this run is not known: any epoch")
        return stop_within(stop, plan.epochs, after=plan.first_epoch)


_LIVE = "greenlove_tracker.extrapolation.live"


@runtime_checkable
class ExplorationResult(Protocol):
    """The result of an exploration, such as that of ``Estimator.estimate()``."""

    @property
    def forecast(self) -> Forecast:
        """The forecast of the explored plan."""

    def forecast_for(self, plan: TrainingPlan) -> Forecast:
        """Return the forecast of another plan from the same trials."""


def prior_for(prior: Forecast | ExplorationResult | None, plan: Plan) -> Forecast | None:
    """Return the forecast of a run with this plan, from an exploration or an earlier forecast.

    If an exploration was made for another number of epochs or steps, make the forecast again from its trials. If one
    of the two plans is unknown, assume that it is the other.

    Raises:
        UsageError: if the prior is neither, or a plain forecast is for another number of epochs or steps.
    """
    if prior is None:
        return None
    if not isinstance(prior, Forecast | ExplorationResult):
        raise UsageError(f"prior must be what estimate() gives, or a Forecast, as of extrapolate(), not {prior!r}")
    forecast = prior if isinstance(prior, Forecast) else prior.forecast
    if forecast.without_stop is not None and (not plan.is_in_epochs or plan.is_resumed):
        forecast = forecast.without_stop  # early stopping is forecast for whole trainings in epochs only
    if forecast.plan is None or not plan.length:
        return forecast
    if plan.is_in_epochs:
        wanted = forecast.plan.with_length(epochs=plan.length)
    else:
        wanted = forecast.plan.with_length(steps=plan.length)
    if plan.phases and plan.phases != wanted.phases:
        wanted = replace(wanted, phases=plan.phases, eval_every=None, save_every=None)
    elif math.isclose(_all_batches(wanted), _all_batches(forecast.plan)):
        return replace(forecast, plan=wanted)  # the same length, in the unit of the run
    if isinstance(prior, Forecast) or forecast.method == "power":
        phases = " in other phases" if wanted.phases else ""
        raise UsageError(
            f"prior is a forecast of {_length(forecast.plan)}, and this run has {_length(wanted)}{phases}: give the "
            "whole exploration, prior=estimation, to forecast again from its trials (not for method='power'), or a "
            "forecast of this plan"
        )
    return prior.forecast_for(wanted)


def _all_batches(plan: TrainingPlan) -> float:
    return plan.n_epochs * plan.batches_per_epoch


def _length(plan: TrainingPlan) -> str:
    if plan.epochs is not None:
        return plural(plan.epochs, "epoch")
    return plural(plan.steps or 0, "step")


# -- the progress that forecasts use ----------------------------------------------------------------------------------


def _joined(items: list[_Item], join: Callable[[_Item, _Item], _Item | None]) -> list[_Item]:
    """Join neighbours for which ``join`` returns the joined item."""
    result = items[:1]
    for item in items[1:]:
        both = join(result[-1], item)
        if both is None:
            result.append(item)
        else:
            result[-1] = both
    return result


def _joined_to_few(
    items: list[_Item], size: Callable[[_Item], float], join: Callable[[_Item, _Item], _Item | None]
) -> list[_Item]:
    """Join neighbours to at most 2 × _FEWEST_BLOCKS items, once there are 4 × _FEWEST_BLOCKS."""
    if len(items) < 4 * _FEWEST_BLOCKS:
        return items
    most = math.fsum(map(size, items)) / _FEWEST_BLOCKS

    def join_small(a: _Item, b: _Item) -> _Item | None:
        if size(a) + size(b) > most:
            return None
        return join(a, b)

    return _joined(items, join_small)


def _joined_blocks(a: Block, b: Block) -> Block | None:
    if a.is_cold != b.is_cold or a.between_s is None or b.between_s is None:
        return None
    paused_s = a.paused_s + b.paused_s
    between_s = a.between_s + b.between_s
    return Block(a.units + b.units, a.active_s + b.active_s, paused_s, between_s, a.is_cold)


@dataclass(slots=True)
class _OpenEpoch:
    began_s: float  # since the run began
    active_s: float = 0.0
    paused_s: float = 0.0
    loading_s: float = 0.0  # active time during which our imports ran


class ProgressLog:
    """Add up epochs or steps, and the gaps between them, as rows are finished.

    Attributes:
        energy_factor: multiplies every energy: PUE and the assumed rest of the node.
        is_resumed: True if an earlier run did a part of the training. The first epoch may then be a part of one, and is
            not used as a measure of the others.
    """

    def __init__(self) -> None:
        self.is_resumed = False
        self.energy_factor = 1.0
        self._epochs: list[Block] = []  # the gap after the last one is unknown until the next epoch begins
        self._n_epochs = 0  # epochs done
        self._open: _OpenEpoch | None = None
        self._startup_s = self._between_s = 0.0  # before the first epoch; after the last one
        self._rows_s = 0.0  # the time of all rows
        self._settled_s = 0.0  # until the end of the last epoch, or of the gap after it if that is known
        # Durations in s and energies in kWh; the last may be shorter than ``_LEAST_POWER_S``.
        self._metered: list[tuple[float, float]] = []
        # Steps of a training that counts in steps, or of the first epoch: the first mark, before which all time is
        # start-up; the latest mark; and the steps between them.
        self._first_step: StepMark | None = None
        self._last_step = StepMark(0, 0.0)
        self._steps: list[Block] = []
        self._is_cut = False  # an epoch was cut off and is done again, so its steps are not used
        self._parts: list[Block] = []  # of the first epoch; empty if its steps are too few

    @property
    def has_power(self) -> bool:
        """True once the mean power is known."""
        return bool(self._metered) and self._metered[0][0] >= _LEAST_POWER_S

    @property
    def is_in_first_epoch(self) -> bool:
        """True until an epoch has ended, or was cut off."""
        return not self._n_epochs and not self._is_cut

    def add_row(self, row: Row) -> None:
        """Add a finished row."""
        self._rows_s += row.gap_before_s
        self._add_energy(row.gap_before_s, row.gap_before)
        self._add_energy(row.duration_s, row.energy)
        if self._open is not None:
            self._open.paused_s += row.gap_before_s
        elif self._n_epochs:
            self._between_s += row.gap_before_s
        else:
            self._startup_s += row.gap_before_s
        if row.epoch is not None:
            if self._open is None:
                self._settle_gap()
                self._open = _OpenEpoch(self._rows_s)
            self._open.active_s += row.duration_s
            if Flag.LOADING in row.flags:
                self._open.loading_s += row.duration_s
        self._rows_s += row.duration_s
        if Flag.UNFINISHED in row.flags:
            self._open = None
            self._is_cut = True
        elif row.kind is RowKind.EPOCH and self._open is not None:
            self._end_epoch(self._open)

    def _settle_gap(self) -> None:
        """Add the gap to the epoch before it."""
        if self._n_epochs:
            self._settled_s = self._rows_s
        if self._epochs:
            last = self._epochs[-1]
            self._epochs[-1] = replace(last, between_s=(last.between_s or 0.0) + self._between_s)
            self._epochs = _joined_to_few(self._epochs, lambda block: block.units, _joined_blocks)
        self._between_s = 0.0

    def _end_epoch(self, epoch: _OpenEpoch) -> None:
        if self.is_in_first_epoch:
            self._parts = self._parts_of(epoch)
        if self._n_epochs or not self.is_resumed:
            is_cold = epoch.loading_s > LOADING_SHARE * epoch.active_s
            self._epochs.append(Block(1, epoch.active_s, epoch.paused_s, None, is_cold))
        self._open = None
        self._settled_s = self._rows_s
        self._n_epochs += 1

    def _parts_of(self, epoch: _OpenEpoch) -> list[Block]:
        """Return the epoch in parts; none if it has too few steps, or pauses.

        The time after its last step, such as a validation, is spread over all parts.
        """
        startup_s = 0.0
        if self._first_step is not None:
            startup_s = self._first_step.at_s - epoch.began_s
        steps = math.fsum(block.units for block in self._steps)
        is_coarse = not self._steps or max(block.units for block in self._steps) * _PARTS > steps
        if is_coarse or epoch.paused_s or startup_s >= epoch.active_s:
            return []
        stretch = (epoch.active_s - startup_s) / math.fsum(block.active_s for block in self._steps)

        def join_small(a: Block, b: Block) -> Block | None:
            if a.units * _PARTS >= steps:
                return None
            return _joined_blocks(a, b)

        return [
            replace(part, units=part.units / steps, active_s=part.active_s * stretch, between_s=None)
            for part in _joined(self._steps, join_small)
        ]

    def _add_energy(self, duration_s: float, energy: Energy) -> None:
        energy_kwh = energy.total_kwh
        if energy_kwh is None or duration_s <= 0:
            return
        if self._metered and self._metered[-1][0] < _LEAST_POWER_S:
            before_s, before_kwh = self._metered.pop()
            duration_s += before_s
            energy_kwh += before_kwh
        self._metered.append((duration_s, energy_kwh))
        self._metered = _joined_to_few(self._metered, lambda power: power[0], lambda a, b: (a[0] + b[0], a[1] + b[1]))

    def add_steps(self, marks: Sequence[StepMark]) -> None:
        """Add the steps since the last call, of a training that counts in steps or of the first epoch.

        The time before the first mark is start-up, such as loading and compiling. Steps that took no time are counted
        with the next ones.

        Args:
            marks: the marks after the first and after the last step of the run; empty before the first step.
        """
        for mark in marks:
            if self._first_step is None:
                self._first_step = self._last_step = mark
            last = self._last_step
            taken_s = mark.active_s - last.active_s
            if mark.steps > last.steps and taken_s > 0:
                is_cold = mark.loading_s - last.loading_s > LOADING_SHARE * taken_s
                self._steps.append(Block(mark.steps - last.steps, taken_s, mark.paused_s - last.paused_s, 0.0, is_cold))
                self._steps = _joined_to_few(self._steps, lambda block: block.units, _joined_blocks)
                self._last_step = mark

    def in_epochs(self, total: int, open_gap_s: float | None = None) -> Progress:
        """Return the progress of a training of ``total`` epochs.

        Args:
            total: epochs of the whole training.
            open_gap_s: the gap before the open epoch, which is in no row yet; None if no epoch is open.
        """
        blocks = list(self._epochs)
        settled_s = self._settled_s
        startup_s = self._startup_s
        if open_gap_s is not None and self._open is None:
            settled_s = self._rows_s + open_gap_s
            if blocks:
                gap_s = (blocks[-1].between_s or 0.0) + self._between_s + open_gap_s
                blocks[-1] = replace(blocks[-1], between_s=gap_s)
        are_parts_used = bool(self._parts) and len(blocks) == self._n_epochs <= _MOST_EPOCHS_BESIDE_PARTS
        if are_parts_used and self._first_step is not None:
            startup_s = self._first_step.at_s
            last_part = replace(self._parts[-1], between_s=blocks[0].between_s)
            blocks = [*self._parts[:-1], last_part, *blocks[1:]]
        is_of_first_epoch = are_parts_used and self._n_epochs == 1
        return self._progress(total, self._n_epochs, blocks, settled_s, startup_s, is_of_first_epoch=is_of_first_epoch)

    def in_first_epoch(self, total: int, steps_per_epoch: float, begun: float = 0.0) -> Progress | None:
        """Return the progress of a training of ``total`` epochs during its first epoch, from the steps.

        Return None if there are too few steps, or if an epoch was cut off.

        Args:
            total: epochs of the whole training.
            steps_per_epoch: as planned.
            begun: the share of the first epoch that an earlier run did, 0 to 1.
        """
        first = self._first_step
        last = self._last_step
        if not self.is_in_first_epoch or first is None or last.active_s - first.active_s < _LEAST_STEPPED_S:
            return None
        blocks = [replace(block, units=block.units / steps_per_epoch, between_s=None) for block in self._steps]
        done = begun + last.steps / steps_per_epoch
        return self._progress(total, done, blocks, last.at_s, first.at_s, is_of_first_epoch=True)

    def in_steps(self, total: int) -> Progress:
        """Return the progress of a training of ``total`` steps."""
        last = self._last_step
        startup_s = 0.0 if self._first_step is None else self._first_step.at_s
        return self._progress(total, last.steps, self._steps, last.at_s, startup_s, is_in_steps=True)

    def _progress(
        self,
        total: int,
        done: float,
        blocks: Sequence[Block],
        elapsed_s: float,
        startup_s: float,
        *,
        is_in_steps: bool = False,
        is_of_first_epoch: bool = False,
    ) -> Progress:
        powers = [power for power in self._metered if power[0] >= _LEAST_POWER_S]
        used_kwh = None
        if powers:
            kwh_per_s = math.fsum(kwh for _, kwh in powers) / math.fsum(s for s, _ in powers)
            metered_s, metered_kwh = map(math.fsum, zip(*self._metered, strict=True))
            unmetered_s = elapsed_s - metered_s  # negative if an open epoch was metered
            used_kwh = (metered_kwh + kwh_per_s * unmetered_s) * self.energy_factor
        return Progress(
            total,
            done,
            tuple(blocks),
            startup_s,
            elapsed_s,
            tuple((s, (w_from_kwh_s(kwh, s) or 0.0) * self.energy_factor) for s, kwh in powers),
            used_kwh,
            is_in_steps=is_in_steps,
            is_of_first_epoch=is_of_first_epoch,
        )

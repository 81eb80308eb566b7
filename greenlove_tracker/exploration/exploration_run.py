"""The run that an exploration is (docs/decisions/0007): measured and logged as any, and told of when it is over."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from greenlove_tracker import format as fmt
from greenlove_tracker.config import Settings
from greenlove_tracker.console import confirm, open_page, say
from greenlove_tracker.errors import GreenloveError, UsageError
from greenlove_tracker.extrapolation.extrapolate import forecast_exploration, forecast_from_log
from greenlove_tracker.forecasting import LEAST_ENERGY_S, Forecast, TrainingPlan, Trial
from greenlove_tracker.job import find_ranks
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.trials import (
    EXPLORATIONS_DIR,
    ExplorationMetadata,
    metadata_fields,
    plan_fields,
    write_trials,
)
from greenlove_tracker.meter import Meter
from greenlove_tracker.projection.comparison import compare_log
from greenlove_tracker.projection.types import Projection, ProjectionOptions
from greenlove_tracker.records import Clock, RunStatus, SystemClock
from greenlove_tracker.rendering.html import write_page
from greenlove_tracker.report.exploration_report import exploration_document
from greenlove_tracker.report.screens import exploration_screen, stopped_line
from greenlove_tracker.tracker.session import Session, open_run
from greenlove_tracker.tracker.state import Plan, RunMode
from greenlove_tracker.units import w_from_kwh_s

_ANSWERS = ("continue", "stop")
_METER_S = 5.0  # the meter takes 1 to 2 s to start, and steps beside that take up to three times as long
_METER_SHARE = 0.2  # of a small budget, that is waited for it at most


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    """What is done when an exploration is over.

    Attributes:
        opens_page: in a browser, where there is one.
        asks: on a terminal, whether to train on.
        on_no_terminal: ``continue`` or ``stop``: the answer where there is nobody to ask.
        comparison: what is asked of the comparison with other GPUs.
        undoes: whether model and random state are as before.

    Raises:
        UsageError: where the answer is another.
    """

    opens_page: bool
    asks: bool
    on_no_terminal: str
    comparison: ProjectionOptions
    undoes: bool

    def __post_init__(self) -> None:
        if self.on_no_terminal not in _ANSWERS:
            raise UsageError(f'on_no_terminal must be "continue" or "stop", not {self.on_no_terminal!r}')


@dataclass(frozen=True, slots=True, repr=False)
class Estimation:
    """What an exploration found.

    Attributes:
        forecast: of the whole training.
        trials: that it was made from.
        projections: the same training here and on GPUs that can be rented; empty where that cannot be told.
        spent_s: what the exploration took, its preparations too.
        advice: what to do instead of exploring, where the training is short.
        run_dir: where the trials are written; ``greenlove forecast`` reads them again.
        page: the dashboard, one self-contained file.
        continues: whether to train here now: as was answered on the terminal, or as ``on_no_terminal`` says.
        peak_memory_gb: the most that torch's tensors took on one GPU, in GiB; on a CPU, that the process took.
        gpu_power_w: mean draw of the GPUs together in the trials; None where it was not measured for long enough.
    """

    forecast: Forecast
    trials: tuple[Trial, ...]
    projections: tuple[Projection, ...]
    spent_s: float
    advice: str | None
    run_dir: Path
    page: Path
    continues: bool
    peak_memory_gb: float | None
    gpu_power_w: float | None

    def __repr__(self) -> str:
        """In a line: all of its fields would fill screens."""
        known = [(getattr(self.forecast, field), text) for field, (_, text) in fmt.QUANTITIES.items()]
        told = ", ".join(fmt.interval(e.point, e.lower, e.upper, text) for e, text in known if e is not None)
        doubt = "" if self.forecast.is_reliable else ", not reliable"
        return f"Estimation({told}{doubt}; {fmt.plural(len(self.trials), 'trial')}; {self.run_dir})"

    def forecast_for(self, plan: TrainingPlan) -> Forecast:
        """The forecast of another plan from the same trials, as they are kept in ``run_dir``; nothing is run.

        Raises:
            UsageError: where the trials say nothing of this plan.
        """
        return forecast_from_log(Run(self.run_dir), plan)


class ExplorationRun:
    """One exploration's session, from its first moment to what is said of it.

    Args:
        settings: as of any run.
        plan: what is explored for.
        budget_s: of the exploration.
        clock: None: the system's, with the meter in the background.
        meter: None: CodeCarbon.
    """

    def __init__(
        self, settings: Settings, plan: TrainingPlan, budget_s: float, clock: Clock | None, meter: Meter | None
    ) -> None:
        outer = open_run()
        if outer is not None:  # its energy is the outer run's too: beside that in a log directory it would count twice
            settings = replace(settings, log_dir=str(outer.run_dir / EXPLORATIONS_DIR))
        self._settings, self._plan, self._budget_s = settings, plan, budget_s
        self._clock = clock or SystemClock()
        self._began_s = self._clock.perf_s()
        self._session = Session(
            settings,
            Plan(),
            find_ranks(os.environ),
            clock,
            meter,
            mode=RunMode.EXPLORATION,
            extra_fields=plan_fields(plan),
        )
        self._session.wait_ready(min(_METER_S, _METER_SHARE * budget_s))

    def perf_s(self) -> float:
        """The clock that all is timed by."""
        return self._clock.perf_s()

    @property
    def spent_s(self) -> float:
        """Since it began."""
        return self.perf_s() - self._began_s

    def begin(self) -> None:
        """A trial begins: an epoch of the run."""
        with self._session.tracked_call as recorder:
            recorder.start_epoch()

    def end(self) -> float | None:
        """It is over; its energy in kWh, None where a part of it was not metered."""
        number = None
        with self._session.tracked_call as recorder:
            number = recorder.epoch
            recorder.end_epoch()
        parts = [row.energy.total_kwh for row in self._session.rows if row.epoch == number]
        known = [kwh for kwh in parts if kwh is not None]
        return sum(known) if known and len(known) == len(parts) else None

    def break_off(
        self, error: BaseException, trials: Sequence[Trial], seen: ExplorationMetadata, telling: EstimateOptions
    ) -> None:
        """It came to nothing; what was timed until a Ctrl-C is kept, for ``greenlove forecast``.

        Raises:
            OSError: where it cannot be written.
        """
        if not isinstance(error, KeyboardInterrupt):
            self._session.finish(RunStatus.FAILED)
            return
        if trials:
            write_trials(self._session.run_dir, trials)
            self._session.write_fields(metadata_fields(seen))
        self._session.finish(RunStatus.INTERRUPTED)
        if self._settings.verbose > 0:
            say(stopped_line(len(trials), undoes=telling.undoes))

    def forecast(self, trials: Sequence[Trial], seen: ExplorationMetadata, *, seed: int = 0) -> Forecast:
        """The forecast in the terms of this run, as ``forecast_from_log`` makes it from the log.

        Raises:
            UsageError: where the trials cannot give one.
        """
        state = self._session.state
        return forecast_exploration(trials, seen, self._plan, state.factors, gpu_count=state.gpu_count, seed=seed)

    def conclude(
        self,
        forecast: Forecast,
        trials: tuple[Trial, ...],
        seen: ExplorationMetadata,
        advice: str | None,
        telling: EstimateOptions,
    ) -> Estimation:
        """Write all of it down, say it, and ask whether to train on.

        Raises:
            OSError: where it cannot be written.
        """
        session = self._session
        seen = replace(seen, gpu_power_w=self._gpu_power_w())
        write_trials(session.run_dir, trials)
        session.write_fields(metadata_fields(seen))
        session.finish(RunStatus.FINISHED, 0)
        spent_s = self.spent_s
        projections, why_none = self._projections(forecast, telling.comparison)
        page = write_page(
            exploration_document(forecast, trials, projections=projections), session.run_dir / "dashboard.html"
        )
        if telling.opens_page:
            open_page(page.as_uri())
        if self._settings.verbose > 0:
            say(
                exploration_screen(
                    forecast,
                    trials,
                    spent_s,
                    self._budget_s,
                    advice,
                    run_dir=session.shown_dir,
                    now_utc_s=self._clock.utc_s(),
                    undoes=telling.undoes,
                    unprojected=why_none,
                )
            )
        is_asked = telling.asks and self._settings.verbose > 0
        answer = confirm("Continue training locally?", default=False) if is_asked else None
        continues = telling.on_no_terminal == "continue" if answer is None else answer
        return Estimation(
            forecast,
            trials,
            projections,
            spent_s,
            advice,
            session.run_dir,
            page,
            continues,
            seen.peak_memory_gb,
            seen.gpu_power_w,
        )

    def _projections(self, forecast: Forecast, options: ProjectionOptions) -> tuple[tuple[Projection, ...], str]:
        """The same training on other GPUs; none and why where that cannot be told, as from a GPU in no table."""
        try:
            return compare_log(str(self._session.run_dir), options, forecast=forecast).projections, ""
        except GreenloveError as error:
            return (), str(error)

    def _gpu_power_w(self) -> float | None:
        metered = [
            (row.energy.gpu_kwh, row.duration_s)
            for row in self._session.rows
            if row.epoch is not None and row.energy.gpu_kwh is not None
        ]
        timed_s = sum(s for _, s in metered)
        return w_from_kwh_s(sum(kwh for kwh, _ in metered), timed_s) if timed_s >= LEAST_ENERGY_S else None

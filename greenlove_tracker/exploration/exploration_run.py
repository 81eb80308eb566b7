"""The run that an exploration is (docs/decisions/0007): measured and logged as any, forecast from, and reported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from greenlove_tracker.exploration.trial_session import TrialSession
from greenlove_tracker.extrapolation.extrapolate import extrapolate, forecast_from_log
from greenlove_tracker.extrapolation.time_fit import time_fit
from greenlove_tracker.files.writing import write_report
from greenlove_tracker.logs import trials as trials_log
from greenlove_tracker.logs.run import Run
from greenlove_tracker.logs.uncertainty import forecast_with_meter_error
from greenlove_tracker.meter import Meter
from greenlove_tracker.projection.from_log import compare_run
from greenlove_tracker.projection.options import ProjectionOptions
from greenlove_tracker.projection.types import Projection
from greenlove_tracker.rendering import html, terminal
from greenlove_tracker.report import wording
from greenlove_tracker.report.exploration_report import exploration_document, progress_line
from greenlove_tracker.settings.config import Settings, time_limit
from greenlove_tracker.text import format as fmt
from greenlove_tracker.text.console import confirm, open_page, say
from greenlove_tracker.vocabulary.errors import GreenloveError, UsageError
from greenlove_tracker.vocabulary.forecasting import (
    LEAST_ENERGY_S,
    LEAST_S,
    MOST_S,
    Forecast,
    TimeFit,
    TrainingPlan,
    Trial,
)
from greenlove_tracker.vocabulary.records import Clock, RunStatus
from greenlove_tracker.vocabulary.units import w_from_kwh_s
from greenlove_tracker.vocabulary.workloads import Seen


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    """The user's choices for an estimate.

    Attributes:
        budget_s: of the exploration.
        auto_open_report: open the page in a browser, where there is one.
        asks: ask on a terminal whether to train on.
        on_no_terminal: ``continue`` or ``stop``: the answer where there is nobody to ask.
        clock: None: the system's, with the meter in the background.
        meter: None: CodeCarbon.
        comparison: options of the comparison with other GPUs.

    Raises:
        UsageError: where the answer is another, or the budget cannot be one.
    """

    budget_s: float
    auto_open_report: bool
    asks: bool
    on_no_terminal: str
    clock: Clock | None
    meter: Meter | None
    comparison: ProjectionOptions | None = None

    def __post_init__(self) -> None:
        if not LEAST_S <= self.budget_s <= MOST_S:
            raise UsageError(
                f"{{argument}} must be positive seconds, such as 30, not {self.budget_s!r}", argument="budget_s"
            )
        if self.on_no_terminal not in ("continue", "stop"):
            raise UsageError(f'on_no_terminal must be "continue" or "stop", not {self.on_no_terminal!r}')


@dataclass(frozen=True, slots=True, repr=False)
class Estimation:
    """The forecast of a training, and the exploration behind it.

    Attributes:
        forecast: of the whole training.
        trials: that it was made from.
        projections: the same training here and on GPUs that can be rented; empty where that is unknown.
        spent_s: time that the exploration took, its preparations too.
        advice: what to do instead of exploring, where the training is short.
        run_dir: where the trials are written; ``greenlove explore DIR`` reads them again.
        page: the dashboard, one self-contained file.
        continues: whether to train here now: as was answered on the terminal, or as ``on_no_terminal`` says.
        peak_memory_gb: the most that torch's tensors took on one GPU, in GiB; on a CPU, that the process took.
        gpu_power_w: mean draw of the GPUs together in the trials; None where it was not measured for long enough.
        time_fit: how the training fits its ``deadline_utc`` or ``max_hours``, if it starts now; None without either.
        gpu_memory_estimate_gb: the peak that a training explored on a CPU would have on a GPU, in GiB; None elsewhere,
            and where it was not soon found.
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
    time_fit: TimeFit | None = None
    gpu_memory_estimate_gb: float | None = None

    def __repr__(self) -> str:
        """Return it in a line: all of its fields would fill screens."""
        estimates = ((getattr(self.forecast, name), text) for name, (_, text) in fmt.QUANTITIES.items())
        known = [fmt.interval(estimate, text) for estimate, text in estimates if estimate]
        doubt = "" if self.forecast.is_reliable else ", not reliable"
        return f"Estimation({', '.join(known)}{doubt}; {fmt.plural(len(self.trials), 'trial')}; {self.run_dir})"

    def forecast_for(self, plan: TrainingPlan) -> Forecast:
        """Forecast another plan from the same trials, as they are logged in ``run_dir``; nothing is run.

        Raises:
            UsageError: where the trials say nothing of this plan.
        """
        return forecast_from_log(Run(self.run_dir), plan)


class ExplorationRun(TrialSession):
    """One exploration's session: its trials are epochs of a run, timed inside ``with``, and reported after it.

    Args:
        settings: as of any run.
        plan: of the whole training.
        options: the user's choices.

    Attributes:
        record: of the trials so far; whoever runs them keeps it up to date.
        plan: of the whole training; whoever explores learns of how many batches a step is.
        options: the user's choices.
        precision: that the training was seen to compute in.
        workload: class that it was seen to be of.
    """

    def __init__(self, settings: Settings, plan: TrainingPlan, options: EstimateOptions) -> None:
        super().__init__(settings, options.budget_s, options.clock, options.meter, trials_log.plan_fields(plan))
        self.record = trials_log.ExplorationRecord()
        self.precision = self.workload = Seen()
        self.plan = plan
        self.options = options

    def _keep_interrupted(self) -> None:
        """Keep the trials before a Ctrl-C for ``greenlove explore DIR``, and say so.

        Raises:
            OSError: where they cannot be written.
        """
        n_trials = len(self.record.trials)
        if n_trials:
            self._write_record()
        if self.settings.verbose > 0:
            say(f"stopped by Ctrl-C after {fmt.plural(n_trials, 'trial')}")

    def show_progress(self, samples: int, relative_width: float | None = None) -> None:
        """Draw the line about the trial that comes next, and the width of the forecast so far."""
        self.draw_status(progress_line(self.spent_s, self.budget_s, samples, relative_width))

    def forecast(self) -> Forecast:
        """Write the log, close the run, and forecast the training from it.

        Raises:
            UsageError: where the trials cannot give a forecast.
            OSError: where the log cannot be written.
        """
        self.record = replace(self.record, gpu_power_w=self._gpu_power_w())
        self._write_record()
        record = self.record
        extrapolate(record.trials, self.plan, method=record.method)  # what it refuses has not finished
        self._session.finish(RunStatus.FINISHED, 0)
        return forecast_from_log(Run(self._session.run_dir), self.plan)

    def conclude(self, forecast: Forecast, advice: str | None = None) -> Estimation:
        """Write the page, show the screen, and ask whether to train on.

        Args:
            forecast: of the training.
            advice: what to do instead of exploring, where there is any.

        Raises:
            OSError: where a file cannot be written.
        """
        session = self._session
        options = self.options
        record = self.record
        spent_s = self.spent_s
        now_utc_s = self._clock.utc_s()
        limit = time_limit(self.settings, now_utc_s)  # not of this Slurm job: the training may be another
        fit = time_fit(forecast, limit.limit_s) if limit else None
        run = Run(session.run_dir)
        projections: tuple[Projection, ...] = ()
        notes = [advice] if advice else []
        notes += map(wording.sentence, filter(None, (wording.kind_sentence(run), wording.place_sentence(run))))
        next_steps = [f"{session.state.shown_dir}/dashboard.html"]
        try:
            projections = compare_run(run, options.comparison or ProjectionOptions(), forecast=forecast).projections
            next_steps.append(f"greenlove project {session.state.shown_dir}")
        except GreenloveError as error:  # as from a GPU in no table
            notes.append(f"No other GPUs: {error}.")
        explored = partial(
            exploration_document,
            forecast_with_meter_error(forecast, run),
            record.trials,
            tilde=wording.energy_mark(run),
        )
        page = write_report(session.run_dir / "dashboard.html", html.render(explored(projections=projections)))
        if options.auto_open_report:
            open_page(page.as_uri())
        continues = None
        if self.settings.verbose > 0:
            next_steps.append(f"greenlove explore {session.state.shown_dir} --epochs N    no new run needed")
            said = explored(now_utc_s=now_utc_s, fit=fit, notes=notes, next_steps=next_steps)
            say(terminal.render(said))
            if options.asks:
                continues = confirm("Continue training locally?", default=False)
        return Estimation(
            forecast,
            record.trials,
            projections,
            spent_s,
            advice,
            session.run_dir,
            page,
            continues=options.on_no_terminal == "continue" if continues is None else continues,
            peak_memory_gb=record.peak_memory_gb,
            gpu_power_w=record.gpu_power_w,
            time_fit=fit,
            gpu_memory_estimate_gb=record.gpu_memory_estimate_gb,
        )

    def _write_record(self) -> None:
        trials_log.write_trials(self._session.run_dir, self.record.trials)
        self._session.write_fields(trials_log.plan_fields(self.plan) + trials_log.record_fields(self.record))
        self._session.note_kind(self.precision, self.workload)

    def _gpu_power_w(self) -> float | None:
        rows = [row for row in self._session.writer.rows() if row.epoch is not None and row.energy.gpu_kwh is not None]
        timed_s = sum(row.duration_s for row in rows)
        if timed_s < LEAST_ENERGY_S:
            return None
        return w_from_kwh_s(sum(row.energy.gpu_kwh or 0.0 for row in rows), timed_s)

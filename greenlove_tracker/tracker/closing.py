"""How a run is closed and added up: its last row, its totals, its log and its final screen."""

from __future__ import annotations

import sys
from dataclasses import replace

from greenlove_tracker.logs import totals, writer
from greenlove_tracker.machine import devices
from greenlove_tracker.machine.job import torch_group
from greenlove_tracker.tracker.background import MetricLog
from greenlove_tracker.tracker.part import RunParts
from greenlove_tracker.tracker.state import RunMode, RunState
from greenlove_tracker.tracker.status import StatusPrinter
from greenlove_tracker.vocabulary.errors import GreenloveError
from greenlove_tracker.vocabulary.pricing import MeanRates
from greenlove_tracker.vocabulary.records import RunStatus, RunSummary


def end_open_epoch(run: RunParts, status: RunStatus) -> None:
    """End the open epoch if early stopping ended it or all steps are done; else mark it as unfinished."""
    recorder = run.recorder
    plan = run.state.plan
    planned = plan.total_steps if plan else None
    is_all = status is RunStatus.FINISHED and plan is not None and not plan.is_in_epochs
    is_done = planned is not None and (recorder.steps_done >= planned or is_all)
    is_last = recorder.epoch is not None and recorder.epoch == run.state.stopped_early_after
    if recorder.epoch is not None and (is_done or (is_last and status is RunStatus.FINISHED)):
        recorder.end_epoch()
    recorder.abandon_epoch()


def end_rows(run: RunParts, status: RunStatus) -> None:
    """Write the tail row, and what the parts of the run and torch still have to say."""
    state = run.state
    end_open_epoch(run, status)
    run.recorder.finish()
    run.tell_rows()
    run.tell(lambda part: part.ending())
    state.is_finished = state.is_training_over = True
    peak_gb = devices.peak_gpu_memory_gb()
    if peak_gb is not None:
        run.note(peak_gpu_memory_gb=f"{peak_gb:.6g}")
    # Only the training imports torch.
    run.note(torch_version=getattr(sys.modules.get("torch"), "__version__", None))


def summarise(run: RunParts, status: RunStatus, exit_code: int | None) -> RunSummary:
    """Return the totals of this rank; of a leading process those of all ranks and joined processes."""
    state = run.state
    ending = totals.Ending(status, exit_code, writer.timestamp(state.clock.utc_s()))
    found = state.row_totals
    if found.n_rows != run.n_rows:
        found = totals.RowTotals.of(run.writer.rows(), MeanRates(state.factors.rates))
    own = totals.summarise(state.factors, {state.ranks.rank: found}, ending, gpu_count=state.gpu_count)
    n_ranks = _world_size(state)
    own = replace(own, n_ranks=max(1, n_ranks), metrics=run.get(MetricLog).totals.summaries)
    is_of_many = state.mode in (RunMode.RUNNER, RunMode.COMMAND) or n_ranks > 1
    if state.is_leading and is_of_many and not run.writer.unwritten:
        return _of_all_processes(state, ending) or own
    return own


def close_log(run: RunParts, summary: RunSummary) -> None:
    """Close the files. The last of several ranks writes the totals of all."""
    state = run.state
    if not run.writer.close(summary if state.is_leading else None):
        reasons = "; ".join(f"{name}: {error}" for name, error in run.writer.unwritten.items())
        message = f"the log in {state.run_dir} is not complete: not all could be written ({reasons})"
        state.warn_once.warn("unwritten", message)
    n_ranks = _world_size(state)
    is_one_of_several = n_ranks > 1 and not (run.writer.unwritten or state.is_part_of_other)
    if is_one_of_several and writer.have_all_ended(state.run_dir, n_ranks):
        writer.write_summary(state.run_dir, _of_all_processes(state) or summary)


def _world_size(state: RunState) -> int:
    return state.ranks.world_size or torch_group()[1]


def _of_all_processes(state: RunState, ending: totals.Ending | None = None) -> RunSummary | None:
    """Return the totals over all ranks and joined processes; None if there are no others."""
    from greenlove_tracker.logs.run import Run

    run = Run(state.run_dir)
    try:
        if ending is not None and not run.joined and len(run.rows) < 2:
            return None
        summary = run.added_up(ending)
        return replace(summary, n_ranks=max(summary.n_ranks, _world_size(state)))
    except (GreenloveError, OSError, ValueError, ArithmeticError) as error:
        state.warn_once.internal_error("summary", error)
        return None


def show_final_screen(run: RunParts, next_command: str = "", exit_code: int | None = None) -> None:
    """Print the final screen of a closed run. An error in doing so is only warned of.

    Args:
        run: the parts of the run, whose totals are known.
        next_command: the command to propose to the user.
        exit_code: the exit code of the command that ran; None: as the log has it.
    """
    state = run.state
    if not state.is_leading:
        return
    from greenlove_tracker.logs.run import Run
    from greenlove_tracker.report.run_report import end_screen

    is_lost = bool(run.writer.unwritten)  # the screen is then made from memory
    try:
        log = Run(state.run_dir, run.writer.held() if is_lost else None)
        run.get(StatusPrinter).show_end(
            end_screen(
                log,
                exit_code=log.summary.exit_code if exit_code is None else exit_code,
                wrote=() if is_lost else (f"{state.shown_dir}/",),
                next_command=next_command,
                is_verbose=state.settings.verbose >= 2,
            )
        )
    except Exception as error:  # the exit code of the training must not change
        state.warn_once.internal_error("screen", error)

"""Trainings of the golden cases: on a clock that is moved by hand, at 360 W, through public names alone."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fakes import FakeClock, tick

import greenlove_tracker as greenlove
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.vocabulary.errors import BudgetExceeded

FACTORS = {"carbon_intensity_gco2e_per_kwh": 400, "electricity_price_usd_per_kwh": 0.3}
BATCHES = 4


def tracked(
    place: Path,
    epochs_s: Sequence[float] = (10.0, 11.0, 9.5) * 3,
    *,
    error: BaseException | None = None,
    **settings: Any,
) -> greenlove.Tracker:
    """Train epochs of these lengths, and return the tracker, stopped; with an error it ends the training."""
    clock = FakeClock()
    settings = {"epochs": len(epochs_s), "log_dir": place / "logs", "verbose": 0} | FACTORS | settings
    tracker = greenlove.Tracker(clock=clock, meter=SimulatedMeter(clock, gpu_w=360.0), **settings)
    try:
        with tracker:
            for number, epoch_s in enumerate(epochs_s):
                train_epoch(tracker, clock, epoch_s)
                tracker.log_metric("accuracy", 1 - 1 / (number + 2))
                with greenlove.track("evaluation"):
                    clock.pass_s(1.0)
            if error is not None:
                raise error
    except (BudgetExceeded, SystemExit, ValueError):
        pass  # the log says how it ended
    return tracker


def train_epoch(tracker: greenlove.Tracker, clock: FakeClock, epoch_s: float) -> None:
    tracker.epoch_start()
    for _ in range(BATCHES):
        clock.pass_s(epoch_s / BATCHES)
        tracker.step(n_samples=32, n_tokens=512)
        tick()
    tracker.epoch_end()
    tick()


def replayed(place: Path) -> greenlove.Tracker:
    """Track a recorded training again, epoch by epoch, for its forecasts."""
    run = min(greenlove.read_logs(place / "recorded").runs, key=lambda run: run.run_id)
    return tracked(place, [epoch.duration_s for epoch in run.epochs])


def script(place: Path) -> dict[str, Any]:
    """Run a script that fails, under ``greenlove run`` with simulated hardware."""
    loop = "for _ in range(3):\n    tracker.epoch_start()\n    tracker.epoch_end()\nraise SystemExit(3)\n"
    (place / "train.py").write_text(f"import greenlove_tracker\ntracker = greenlove_tracker.Tracker(3)\n{loop}")
    command = [sys.executable, "-m", "greenlove_tracker", "run", "--log-dir", "logs", "train.py"]
    environment = {**os.environ, "GREENLOVE_SIM_GPU_W": "300", "GREENLOVE_SIM_CPU_TDP_W": "100"}
    code = subprocess.run(command, cwd=place, env=environment, capture_output=True, check=False).returncode
    runs = [run.summary for run in greenlove.read_logs(place / "logs").runs]
    found = sorted((run.status, run.exit_code, run.epochs_done, run.gpu_count) for run in runs)
    return {"exit_code": code, "runs": found}


# -- With torch --


def explored(place: Path) -> dict[str, Any]:
    """Explore a training whose steps take 50 ms, and the first one 2 s; and see what is left of it."""
    import torch

    clock = FakeClock()
    torch.manual_seed(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    before = model.weight.item(), torch.get_rng_state().sum().item()

    def step(model: Any, batch: Any, optimizer: Any, criterion: Any, device: Any) -> None:
        optimizer.zero_grad()
        criterion(model(batch[0]), batch[1]).backward()
        optimizer.step()
        torch.rand(1)
        clock.pass_s(0.05 if clock.now_s > 2.0 else 2.0)

    data = torch.utils.data.TensorDataset(torch.linspace(-1, 1, 6400)[:, None], torch.zeros(6400, 1))
    meter = SimulatedMeter(clock, gpu_w=360.0, cpu_tdp_w=100.0)
    settings = {"clock": clock, "meter": meter, "log_dir": place / "logs", "verbose": 0}
    estimation = greenlove.Estimator(
        model, optimizer, torch.nn.MSELoss(), data, 100, train_step=step, budget_s=30, **settings | FACTORS
    ).estimate()
    after = model.weight.item(), torch.get_rng_state().sum().item()
    is_restored = before == after and not optimizer.state_dict()["state"]
    return {"forecast": estimation.forecast, "trials": estimation.trials, "is_restored": is_restored}


def compared(place: Path) -> Any:
    """Compare a training with one whose steps take 0.7 times as long, and with one like it."""
    import torch

    clock = FakeClock()

    def task() -> dict[str, Any]:
        model = torch.nn.Linear(1, 1)
        data = torch.utils.data.TensorDataset(torch.linspace(-1, 1, 640)[:, None], torch.zeros(640, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.002)
        pieces = {"model": model, "optimizer": optimizer, "criterion": torch.nn.MSELoss(), "train_dataset": data}
        return pieces | {"train_step": step_of(0.25), "total_epochs": 20}

    def step_of(step_s: float) -> Any:
        calls = iter(range(1_000_000))

        def step(model: Any, batch: Any, optimizer: Any, criterion: Any, device: Any) -> Any:
            optimizer.zero_grad()
            loss = criterion(model(batch[0]), batch[1])
            loss.backward()
            optimizer.step()
            clock.pass_s(step_s * (1 + 0.02 * math.sin(next(calls))))
            return loss

        return step

    techniques = [
        greenlove.Technique("faster", lambda parts: parts | {"train_step": step_of(0.175)}),
        greenlove.Technique("same", lambda parts: parts),
    ]
    settings = {"log_dir": place / "logs", "verbose": 0, "clock": clock, "country": "DE", "sleep": clock.pass_s}
    found = greenlove.compare(task, techniques, budget_s=120, meter=SimulatedMeter(clock, gpu_w=360.0), **settings)
    of_rows = ("name", "verdict", "n_trials", "time_ratio", "energy_ratio", "co2e_ratio", "cost_ratio", "whole_run")
    return [{name: getattr(row, name) for name in of_rows} for row in (found.baseline, *found.rows)]


def resumed(place: Path) -> dict[str, Any]:
    """Leave a training in the middle of an epoch, resume it, and compare it with one that nobody left."""
    whole, whole_losses = trained(place / "whole")
    trained(place / "left", leave_after=8)
    other, losses = trained(place / "left")
    return {
        "is_identical": all((a == b).all().item() for a, b in zip(whole, other, strict=True)),
        "has_same_losses": whole_losses[-len(losses) :] == losses,
        "steps_after_resume": len(losses),
        "checkpoints": sorted(path.name for path in (place / "left").iterdir()),
    }


def trained(directory: Path, *, leave_after: int | None = None) -> tuple[list[Any], list[float]]:
    import torch

    torch.manual_seed(3)
    x = torch.randn(24, 5)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1)), batch_size=4, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    checkpointer = greenlove.Checkpointer(directory, **parts, every_s=None, every_steps=2)
    losses: list[float] = []
    for _ in checkpointer.epochs(3, tracker=False):
        for inputs, targets in checkpointer.batches(loader):
            loss = torch.nn.functional.mse_loss(model(inputs).squeeze(1), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == leave_after:
                return [], losses  # as a kill does: nothing is closed
        scheduler.step()
    return [value.clone() for value in model.state_dict().values()], losses

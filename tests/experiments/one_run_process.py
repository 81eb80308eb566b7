"""Forks processes that each train one run of an experiment by ``one_run``, and ends them as they are told.

Each line on stdin is a command, and each on stdout how its process ended, as ``os.waitstatus_to_exitcode`` has it.
"""

import hashlib
import json
import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from greenlove_tracker import Tracker
from greenlove_tracker.checkpointing.checkpointer import Checkpointer
from greenlove_tracker.experiments import definition, one_run
from greenlove_tracker.experiments.definition import (
    Experiment,
    ExperimentBudget,
    PlannedRun,
    StartPolicy,
    TechniqueChoice,
)
from greenlove_tracker.meter import NullMeter
from greenlove_tracker.techniques import full_training

KEY = "0123456789ab"
TASK = "task.py:task"
TASK_TEXT = "from tests.experiments.one_run_process import tiny_task as task\n"
N_SAMPLES, WIDTH = 48, 8
models = []  # that the task made


def tiny_task():
    """A training with dropout, a scheduler that nobody steps, and a step that ends its process where it is told."""
    ends = json.loads(sys.argv[1])
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(N_SAMPLES, WIDTH, generator=generator)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True) + torch.randn(N_SAMPLES, 1, generator=generator))
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 1))
    models.append(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    n_steps = 0

    def step(model, batch, optimizer, criterion, device):
        nonlocal n_steps
        n_steps += 1
        if n_steps == ends.get("at"):
            END[ends["by"]]()
        optimizer.zero_grad()
        loss = criterion(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss

    @torch.no_grad()
    def evaluate(model):
        model.eval()
        loss = float(nn.functional.mse_loss(model(inputs[:16]), data.tensors[1][:16]))
        return {"val_loss": loss, "digest": digest(model)}

    return {
        "model": model,
        "optimizer": optimizer,
        "criterion": nn.MSELoss(),
        "train_dataset": DataLoader(data, 8, shuffle=True),
        "train_step": step,
        "eval_fn": evaluate,
        "also_restore": [torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.5)],
        "total_epochs": 30,
    }


def raises(error):
    raise error


END = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "SIGINT": lambda: os.kill(os.getpid(), signal.SIGINT),
    "ignored SIGINT": lambda: os.kill(os.getpid(), signal.SIGINT),
    "memory": lambda: raises(MemoryError()),
    "error": lambda: raises(ValueError("a shape\nof something")),
    "secret": lambda: raises(ValueError("401 for token=hunter2")),
    "exit": lambda: raises(SystemExit(0)),
}


def digest(model):
    """Return 48 bits of the weights, which a float holds."""
    found = hashlib.sha256()
    for tensor in model.state_dict().values():
        found.update(tensor.contiguous().numpy().tobytes())
    return float(int(found.hexdigest()[:12], 16))


def experiment(directory, **more):
    """Return an experiment of one run; further fields are those of the run."""
    given = {
        "key": KEY,
        "arm": "optimised",
        "group": "optimised, batch_size=8",
        "name": "optimised, batch_size=8, seed 3",
        "values": {"batch_size": 8},
        "seed": 3,
        "task": str(Path(directory, TASK)),
        "arguments": ("${ENDS}",),
        "techniques": (TechniqueChoice("early-stopping=2", {}),),
        "epochs": None,
        "steps": None,
        "batch_size": 8,
        "settings": {"country": "DE", "verbose": 0},
    }
    runs = (PlannedRun(**(given | more)),)
    start, budget = StartPolicy(), ExperimentBudget()
    path = Path(directory, "experiment.yaml")
    return Experiment("tiny", path, "ab" * 32, runs, "optimised", start, budget, Path(directory), ("html",), "final")


def prepare(command):
    """Set what stands in for a file and for a meter."""
    directory, more = command["directory"], command.get("run", {})
    definition.read_experiment = lambda path: experiment(directory, **more)
    Tracker.expect_stop = lambda tracker, rule: None
    Tracker.log_early_stop = lambda tracker, best: Path(directory, "best-epoch.txt").write_text(str(best))
    full_training.Checkpointer = partial(Checkpointer, every_s=None, every_steps=4)
    full_training.train_one = partial(full_training.train_one, meter=NullMeter())
    Path(directory, "task.py").write_text(TASK_TEXT)
    os.environ["ENDS"] = json.dumps(command.get("ends", {}))


def run_child(command):
    """Train in a child that has just been forked, and end it."""
    code = 1
    try:
        if command.get("ends", {}).get("by") == "ignored SIGINT":
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        prepare(command)
        directory = Path(command["directory"])
        with (directory / "stderr.txt").open("w") as err:
            os.dup2(err.fileno(), 2)
            (directory / "result.json").write_text("")
            words = [str(directory / "experiment.yaml"), command.get("key", KEY), str(directory / "result.json")]
            words += ["--outputs", command["outputs"]] if "outputs" in command else []
            code = one_run.main(words)
        if models and code == 0:
            (directory / "digest.txt").write_text(str(digest(models[-1])))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def warm_up():
    """Load what a training loads: children have it then."""
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.Adam([parameter]).step()


def main():
    torch.set_num_threads(1)
    warm_up()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            run_child(json.loads(line))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(json.dumps(code) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    from tests.experiments import (
        one_run_process,  # the module that the task's file imports: there is one list of models
    )

    one_run_process.main()

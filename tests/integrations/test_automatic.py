"""Trainers of Lightning and Hugging Face under ``greenlove run``: they get our callback without a line of code."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch")

from greenlove_tracker import read_logs
from greenlove_tracker.integrations.automatic import _give_hugging_face, lightning_callbacks
from greenlove_tracker.integrations.training_adapter import TrainingAdapter, harmless

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, no_settings):
    """Install the entry points of this source: what is installed may be older; both together are one callback."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    info = tmp_path / "site" / "greenlove_tracker-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greenlove-tracker\nVersion: 0\n")
    lines = [
        line
        for group, names in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in names.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), str(ROOT), str(ROOT / "tests")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("GREENLOVE_SIM_GPU_W", "360")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path


class Hooked:
    def __init__(self, *, is_automatic):
        self._adapter = TrainingAdapter("Trains", None, {}, "here", is_automatic=is_automatic)

    @harmless
    def event(self):
        raise KeyError("of another version")


def test_no_error_in_a_callback_that_nobody_asked_for_reaches_the_training(caplog):
    with pytest.raises(KeyError):
        Hooked(is_automatic=False).event()
    automatic = Hooked(is_automatic=True)
    automatic.event()
    automatic.event()
    assert caplog.text.count("the Trains callback failed, training goes on: 'of another version'") == 1


LIGHTNING = """
import sys, warnings
warnings.filterwarnings("ignore")
from fakes import FakeClock
from {library} import LightningModule, Trainer
from integrations.lightning_samples import Work, make_loaders

class Module(Work, LightningModule):
    pass

def make_trainer(*callbacks, **arguments):
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    return Trainer(accelerator="cpu", **quiet, callbacks=list(callbacks), **(dict(max_epochs=2) | arguments))

def fit(*callbacks, **arguments):
    trainer = make_trainer(*callbacks, **arguments)
    clock = FakeClock()
    trainer.fit(Module(clock), *make_loaders(clock))
    return [callback for callback in trainer.callbacks if "greenlove" in type(callback).__module__]

if __name__ == "__main__":
"""
HUGGING_FACE = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

def make_trainer(*callbacks, **arguments):
    ids = torch.randint(0, 32, (12, 8))
    data = [{"input_ids": row, "labels": row} for row in ids]
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    args = TrainingArguments("out", **quiet, **({"num_train_epochs": 2, "per_device_train_batch_size": 4} | arguments))
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2))
    return Trainer(model, args, train_dataset=data, callbacks=list(callbacks))

def ours(trainer):
    return [c for c in trainer.callback_handler.callbacks if "greenlove" in type(c).__module__]

"""


def greenlove(script, *options, launcher=()):
    Path("train.py").write_text(script)
    words = [sys.executable, "-m", *launcher, "greenlove_tracker", *options, "train.py"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr
    return done


def runs_of_script():
    logs = read_logs("greenlove_logs")
    assert logs.problems == []
    runs = sorted(logs.runs, key=lambda run: run.text("started_at"))
    assert {run.text("part_of") for run in runs} == ({runs[0].run_id} if len(runs) > 1 else {""})
    return runs


def counts(run):
    return [(e.steps, e.batches, e.samples, e.is_complete) for e in run.epochs]


def test_outside_of_the_runner_a_trainer_gets_nothing():
    assert lightning_callbacks() == []


def test_a_list_that_is_not_there_is_an_error_of_ours_and_none_of_the_scripts():
    errors = []
    _give_hugging_face(errors.append, object())
    assert [type(error) for error in errors] == [AttributeError]


def test_a_lightning_trainer_is_tracked_unless_the_script_does_so():
    pytest.importorskip("lightning")
    done = greenlove(
        LIGHTNING.format(library="lightning.pytorch")
        + """
    print([type(callback).__name__ for callback in fit()])
    fit(max_steps=8)
    make_trainer().validate(Module(FakeClock()), make_loaders(FakeClock())[1], verbose=False)
    from greenlove_tracker import Tracker
    from greenlove_tracker.integrations.lightning import GreenloveCallback
    with Tracker(1, verbose=0, project="around") as tracker:
        tracker.epoch_start()
        fit()
        tracker.epoch_end()
    fit(GreenloveCallback(verbose=0, project="own"))
""",
        *("--country", "DE", "--epochs", "7"),
    )
    assert done.stdout == "['AutomaticLightningCallback']\n"
    parts = runs_of_script()
    assert [part.text("project") for part in parts] == ["", "", "around", "own"]
    assert [part.text("epochs_planned") or part.text("total_steps_planned") for part in parts] == ["2", "8", "1", "2"]
    epoch = (6, 6, 22, True)
    assert [counts(parts[i]) for i in (0, 1, 3)] == [[epoch] * 2, [(8, 8, 30, True)], [epoch] * 2]
    assert [(e.steps, e.is_complete) for e in parts[2].epochs] == [(None, True)]
    assert {part.text("country") for part in parts} == {"DE"} and {part.summary.status for part in parts} == {
        "finished"
    }
    assert done.stderr.count(" · finished · ") == 2, done.stderr  # the others are told to be silent


@pytest.mark.slow
def test_a_budget_of_the_command_line_ends_a_lightning_training_and_the_script_goes_on():
    pytest.importorskip("lightning")
    script = LIGHTNING.format(library="pytorch_lightning") + "    fit(max_epochs=100_000)\n    print('after it')\n"
    # 100 s of 360 W: enough for all imports, and not for the training, which is forecast
    done = greenlove(script, "--max-energy", "0.01", "--on-overrun", "stop")
    assert done.stdout == "after it\n" and "training stops after this batch" in done.stderr
    (part,) = runs_of_script()
    assert part.summary.status == "stopped" and 0 < part.summary.epochs_done < 100_000


@pytest.mark.slow
def test_ranks_of_torchrun_are_one_training_and_a_budget_only_warns_them():
    pytest.importorskip("lightning")
    script = LIGHTNING.format(library="lightning.pytorch") + "    fit(devices=2, strategy='ddp')\n"
    done = greenlove(
        script,
        *("--on-overrun", "stop", "--max-energy", "5"),
        launcher=("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"),
    )
    assert done.stderr.count("on_overrun stop: several processes train") == 1
    (part,) = runs_of_script()
    assert [[epoch.samples for epoch in part.epochs_of(rank)] for rank in sorted(part.rows)] == [[11, 11]] * 2
    assert (part.summary.n_ranks, part.summary.epochs_done) == (2, 2)


@pytest.mark.slow
def test_nothing_is_given_where_that_is_asked():
    pytest.importorskip("lightning")
    greenlove(LIGHTNING.format(library="lightning.pytorch") + "    assert fit() == []\n", "--no-auto")
    (run,) = runs_of_script()
    assert not run.epochs


def test_a_hugging_face_trainer_is_tracked_unless_the_script_does_so():
    pytest.importorskip("transformers")
    done = greenlove(
        HUGGING_FACE
        + """
from greenlove_tracker import Tracker
from greenlove_tracker.integrations.huggingface import GreenloveCallback

first = make_trainer()
print([type(callback).__name__ for callback in ours(first)])
first.train()
with Tracker(1, verbose=0, project="around") as tracker:
    tracker.epoch_start()
    make_trainer().train()
    tracker.epoch_end()

def fail(*arguments, **more):
    raise RuntimeError("out of luck")

for n in range(2):  # no callback is told that a training raised
    trainer = make_trainer()
    if not n:
        trainer.training_step = fail
    try:
        trainer.train()
    except RuntimeError:
        pass

make_trainer(GreenloveCallback(verbose=0, project="own")).train()
""",
        *("--country", "DE"),
    )
    assert done.stdout.splitlines()[0] == "['AutomaticHuggingFaceCallback']"
    parts = runs_of_script()
    assert [part.text("project") for part in parts] == ["", "around", "", "", "own"]
    epoch = (3, 3, 12, True)
    assert [counts(parts[i]) for i in (0, 3, 4)] == [[epoch] * 2] * 3
    assert [(e.steps, e.is_complete) for e in parts[1].epochs] == [(None, True)]
    assert [part.summary.status for part in parts[2:]] == ["superseded", "finished", "finished"]
    assert parts[3].text("epochs_planned") == "2"

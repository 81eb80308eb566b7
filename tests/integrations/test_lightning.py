"""The Lightning callback in the real library's own loop, on a clock that is moved by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lightning")

import torch
from fakes import FakeClock, tick
from integrations.lightning_samples import LOAD_S, TRAIN_S, VALIDATE_S, Work, make_loaders
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from greenlove_tracker import Tracker, read_logs
from greenlove_tracker.integrations.lightning import GreenloveCallback
from greenlove_tracker.meter import SimulatedMeter
from greenlove_tracker.vocabulary.records import Flag
from tests.integrations.by_hand import only_run, runs

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning warns of few workers, and much else

N_BATCHES = 6  # of an epoch


class Module(Work, LightningModule):
    pass


def make_callback(clock, **settings):
    return GreenloveCallback(clock=clock, meter=SimulatedMeter(clock, gpu_w=360.0), verbose=0, **settings)


def make_trainer(*callbacks, **arguments):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return Trainer(callbacks=list(callbacks), **(quiet | {"enable_checkpointing": False} | arguments))


def fit(clock, *callbacks, module=None, is_validated=True, ckpt_path=None, **arguments):
    trainer = make_trainer(*callbacks, **arguments)
    train, validation = make_loaders(clock)
    module = module or Module(clock)
    trainer.fit(module, train, validation if is_validated else None, ckpt_path=ckpt_path)
    return trainer


def figures(run):
    return [
        (e.steps, e.batches, e.samples, e.is_complete, round(e.duration_s, 6), round(e.energy.gpu_kwh, 9))
        for e in run.epochs
    ]


def counts(run):
    return [(e.steps, e.batches, e.samples, e.is_complete) for e in run.epochs]


def test_totals_are_those_of_a_tracker_that_is_placed_by_hand(clock):
    fit(clock, make_callback(clock), max_epochs=3, val_check_interval=3)
    by_hand = FakeClock()
    loader, _ = make_loaders(by_hand)
    meter = SimulatedMeter(by_hand, gpu_w=360.0)
    with Tracker(3, clock=by_hand, meter=meter, verbose=0, log_dir="by_hand") as tracker:
        for _ in range(3):
            tracker.epoch_start()
            for number, (inputs, _) in enumerate(loader, start=1):
                by_hand.pass_s(TRAIN_S)
                tracker.step(len(inputs))
                if number == 3:
                    tracker.pause()
                    by_hand.pass_s(2 * VALIDATE_S)
                    tracker.resume()
            tracker.epoch_end()
            by_hand.pass_s(2 * VALIDATE_S)
    run, (expected,) = only_run(), read_logs("by_hand").runs
    epoch_s = N_BATCHES * (LOAD_S + TRAIN_S)
    assert figures(run) == figures(expected) == [(6, 6, 22, True, epoch_s, round(epoch_s * 1e-4, 9))] * 3
    assert (run.summary.status, run.summary.epochs_planned, run.text("epochs_planned")) == ("finished", 3, "3")
    assert run.summary.between_s == pytest.approx(expected.summary.between_s) == 3 * 2 * 2 * VALIDATE_S
    assert run.summary.duration_s == pytest.approx(expected.summary.duration_s)
    assert run.summary.energy_kwh == pytest.approx(expected.summary.energy_kwh)


@pytest.mark.parametrize(
    ("arguments", "planned", "expected"),
    [
        ({"max_steps": 8}, ("", "8"), [(8, 8, 30, True)]),
        ({"max_epochs": 1}, ("", "6"), [(6, 6, 22, True)]),
        ({"max_epochs": 2, "max_steps": 12}, ("2", ""), [(6, 6, 22, True)] * 2),
        ({"max_epochs": 2, "max_steps": 7}, ("", "7"), [(7, 7, 26, True)]),
        ({"max_epochs": 2, "limit_train_batches": 4}, ("2", ""), [(4, 4, 16, True)] * 2),
        ({"max_epochs": 2, "accumulate_grad_batches": 4}, ("2", ""), [(2, 6, 22, True)] * 2),
        ({"max_steps": 3, "accumulate_grad_batches": 4}, ("", "3"), [(3, 10, 38, True)]),
        ({"max_epochs": 2, "overfit_batches": 2}, ("2", ""), [(2, 2, 8, True)] * 2),
        ({"fast_dev_run": 2}, ("", "2"), [(2, 2, 8, True)]),
        ({"max_epochs": 2, "reload_dataloaders_every_n_epochs": 1}, ("2", ""), [(6, 6, 22, True)] * 2),
    ],
)
def test_the_trainers_length_is_the_plan(clock, arguments, planned, expected):
    fit(clock, make_callback(clock), **arguments)
    run = only_run()
    assert (run.text("epochs_planned"), run.text("total_steps_planned")) == planned
    assert counts(run) == expected


def manual_module(clock, optimizers, step):
    module = Module(clock)
    module.automatic_optimization = False
    module.configure_optimizers = lambda: [torch.optim.SGD(module.parameters(), lr=0.01) for _ in range(optimizers)]

    def training_step(batch, batch_idx):
        clock.pass_s(TRAIN_S)
        optimizers = module.optimizers()
        step(optimizers if isinstance(optimizers, list) else [optimizers], batch_idx)

    module.training_step = training_step
    return module


def test_several_optimizers_count_batches_where_the_trainers_own_step_doubles(clock):
    module = manual_module(clock, 2, lambda optimizers, number: [optimizer.step() for optimizer in optimizers])
    trainer = fit(clock, make_callback(clock), module=module, max_epochs=2)
    assert trainer.global_step == 24
    assert counts(only_run()) == [(6, 6, 22, True)] * 2


def test_manual_optimization_counts_the_batches_that_a_step_followed(clock):
    each = lambda optimizers, number: optimizers[0].step() if number % 2 else None  # noqa: E731
    fit(clock, make_callback(clock), module=manual_module(clock, 1, each), max_epochs=2)
    fit(clock, make_callback(clock), module=manual_module(clock, 1, lambda *none: None), max_epochs=1)
    fit(clock, make_callback(clock), module=manual_module(clock, 1, each), max_epochs=-1, max_steps=4)
    accumulated, without, in_steps = runs()
    assert counts(accumulated) == [(3, 6, 22, True)] * 2
    assert counts(without) == [(0, 6, 22, True)]
    assert counts(in_steps) == [(3, 6, 22, True), (1, 2, 8, False)]
    assert (in_steps.text("epochs_planned"), in_steps.text("total_steps_planned")) == ("", "")


@pytest.mark.parametrize(
    ("arguments", "every", "planned", "expected"),
    [
        ({"max_epochs": 3}, {"every_n_epochs": 1}, "2", [(6, True), (6, True)]),
        ({"max_epochs": 3}, {"every_n_train_steps": 8}, "2", [(4, True), (6, True)]),
        ({"max_steps": 14}, {"every_n_train_steps": 8}, "6", [(6, True)]),
    ],
    ids=["between epochs", "in mid-epoch", "steps"],
)
def test_a_resumed_training_plans_the_rest(clock, arguments, every, planned, expected):
    def keep():
        return ModelCheckpoint("checkpoints", filename="kept", save_top_k=-1, **every)

    module = Module(clock, breaks_at=11)
    with pytest.raises(RuntimeError, match="out of luck"):
        fit(clock, make_callback(clock), keep(), module=module, enable_checkpointing=True, **arguments)
    fit(clock, make_callback(clock), ckpt_path="checkpoints/kept.ckpt", **arguments)
    first, second = runs()
    assert first.summary.status == "failed" and first.summary.counts.batches == 10
    assert planned in (second.text("epochs_planned"), second.text("total_steps_planned"))
    assert [(e.steps, e.is_complete) for e in second.epochs] == expected


def test_a_fit_with_nothing_to_do_and_validations_alone_are_no_runs(clock):
    trainer = fit(clock, make_callback(clock), max_epochs=0)
    trainer.validate(Module(clock), make_loaders(clock)[1], verbose=False)
    fit(clock, make_callback(clock), max_epochs=2, limit_train_batches=0)
    assert not Path("greenlove_logs").exists()


def test_early_stopping_in_mid_epoch_leaves_that_epoch_unfinished(clock):
    stops = EarlyStopping("val_loss", divergence_threshold=-1.0)  # at the first validation
    fit(clock, make_callback(clock), stops, max_epochs=3, val_check_interval=4, num_sanity_val_steps=0)
    run = only_run()
    assert counts(run) == [(4, 4, 16, False)] and Flag.UNFINISHED in run.epochs[0].flags
    assert (run.summary.status, run.summary.epochs_done) == ("finished", 0)


def test_an_epoch_that_the_module_ends_by_itself_is_one(clock):
    module = Module(clock)
    module.on_train_batch_start = lambda batch, batch_idx: -1 if batch_idx == 2 else None
    fit(clock, make_callback(clock), module=module, max_epochs=2)
    assert counts(only_run()) == [(2, 2, 8, True)] * 2


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        return ((torch.zeros(4), torch.zeros(1)) for _ in range(10))


def test_a_loader_without_a_length_and_several_loaders(clock):
    loader = torch.utils.data.DataLoader(Endless(), 4)
    make_trainer(make_callback(clock), max_epochs=2).fit(Module(clock), loader)
    make_trainer(make_callback(clock), max_steps=4).fit(Module(clock), loader)
    module = Module(clock)
    one = module.training_step
    module.training_step = lambda batch, batch_idx: one(batch["a"], batch_idx)
    make_trainer(make_callback(clock), max_epochs=2).fit(module, {"a": loader, "b": make_loaders(clock)[0]})
    sized, in_steps, several = runs()
    assert counts(sized) == [(3, 3, None, True)] * 2
    assert counts(in_steps) == [(4, 4, None, True)] and in_steps.text("total_steps_planned") == "4"
    assert [(e.batches, e.samples) for e in several.epochs] == [(6, None)] * 2


def test_ctrl_c_is_an_interruption(clock):
    module = Module(clock)

    def interrupted(batch, batch_idx):
        raise KeyboardInterrupt

    module.training_step = interrupted
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        fit(clock, make_callback(clock), module=module, max_epochs=2)
    assert only_run().summary.status == "interrupted"


class Ticks(Callback):
    """Does what the tracker's own thread does."""

    def on_train_batch_end(self, *arguments):
        tick()


def test_what_the_module_logs_are_metrics_of_the_run_and_the_sanity_check_logs_none(clock):
    module = Module(clock)
    one = module.training_step

    def training_step(batch, batch_idx):
        module.log("train_loss", float(batch_idx), on_step=False, on_epoch=True)
        module.log("epoch_number", float(module.current_epoch))
        return one(batch, batch_idx)

    module.training_step = training_step
    callback = GreenloveCallback(clock=clock, meter=SimulatedMeter(clock, gpu_w=360.0), verbose=1)
    trainer = fit(clock, Ticks(), callback, module=module, max_epochs=20)
    logged = only_run().metric_values[0]
    assert {value.name for value in logged} == {"val_loss", "train_loss", "epoch_number"}
    validations = [(value.epoch, value.value) for value in logged if value.name == "val_loss"]
    assert [epoch for epoch, _ in validations] == list(range(1, 21))  # each once, and none before the first
    assert validations[-1][1] == pytest.approx(trainer.callback_metrics["val_loss"].item())
    assert len([value for value in logged if value.name == "epoch_number"]) == 20


# -- in processes of their own -------------------------------------------------------------------------------------


def run_python(code, *arguments, **environment):
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "tests")])
    Path("script.py").write_text(code)
    return subprocess.run(
        [sys.executable, "script.py", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment},
        check=False,
    )


SCRIPT = """
import sys, warnings
warnings.filterwarnings("ignore")
from fakes import FakeClock
{imports}
from greenlove_tracker.integrations.lightning import GreenloveCallback
from integrations.lightning_samples import Work, make_loaders

class Module(Work, LightningModule):
    pass

if __name__ == "__main__":
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    callback = GreenloveCallback(sim_gpu_w=360, verbose=0{settings})
    trainer = Trainer(callbacks=[callback], accelerator="cpu", **quiet, {arguments})
    clock = FakeClock()
    trainer.fit(Module(clock), *make_loaders(clock))
    print(type(callback).__mro__[1].__module__, trainer.global_step)
"""
NEW = "from lightning.pytorch import LightningModule, Trainer"
OLD = "from pytorch_lightning import LightningModule, Trainer"


@pytest.mark.slow
def test_a_callback_of_the_new_name_tracks_a_trainer_of_the_old_one():
    imports = f"import greenlove_tracker.integrations.lightning\n{OLD}"
    done = run_python(SCRIPT.format(imports=imports, arguments="max_epochs=2", settings=""))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lightning.pytorch.")
    assert counts(only_run()) == [(6, 6, 22, True)] * 2


@pytest.mark.slow
def test_pytorch_lightning_alone_is_enough():
    hidden = "import sys\nsys.modules['lightning'] = None\nimport greenlove_tracker.integrations.lightning\n" + OLD
    done = run_python(SCRIPT.format(imports=hidden, arguments="max_epochs=2", settings=""))
    assert done.returncode == 0 and done.stdout.startswith("pytorch_lightning."), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn"])
def test_processes_of_one_training_are_one_run_with_one_meter(strategy):
    arguments = f"max_epochs=2, devices=2, strategy={strategy!r}"
    done = run_python(SCRIPT.format(imports=NEW, arguments=arguments, settings=""))
    assert done.returncode == 0, done.stderr
    run = only_run()
    assert sorted(run.rows) == [0, 1] and (run.summary.n_ranks, run.summary.status) == (2, "finished")
    assert [[(e.steps, e.batches, e.samples, e.is_complete) for e in run.epochs_of(rank)] for rank in (0, 1)] == [
        [(3, 3, 11, True)] * 2
    ] * 2
    has_energy = [any(row.energy.gpu_kwh is not None for row in run.rows[rank]) for rank in (0, 1)]
    assert has_energy == [True, False]


@pytest.mark.parametrize(
    ("precision", "known"),
    [
        ("32-true", ("fp32", "32 bits, without autocast")),
        ("bf16-mixed", ("bf16", "autocast")),
        ("64-true", ("", "")),
    ],
)
def test_precision_is_that_of_the_trainer(clock, precision, known):
    fit(clock, make_callback(clock), max_epochs=1, precision=precision, is_validated=False)
    run = only_run()
    assert (run.text("precision"), run.text("precision_basis")) == known
    assert run.text("workload") == ""  # of one linear layer

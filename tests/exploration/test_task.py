from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from greenlove_tracker.cli import cli
from greenlove_tracker.exploration.task import load_task_function, pieces_of
from greenlove_tracker.vocabulary.errors import UsageError

TAKES = ("model", "optimizer", "criterion", "train_dataset", "total_epochs", "batch_size", "eval_fn")
TASK = """
import torch
from torch import nn

def task():
    torch.manual_seed(0)
    model = nn.Linear(8, 2)
    data = torch.utils.data.TensorDataset(torch.randn(640, 8), torch.randint(0, 2, (640,)))
    return model, torch.optim.SGD(model.parameters(), 0.1), nn.CrossEntropyLoss(), data

def named():
    return dict(zip(("model", "optimizer", "criterion", "train_dataset"), task())) | {"batch_size": 32}

def graded():
    return named() | {"difficulty": range(640)}

def misnamed():
    model, optimizer, criterion, data = task()
    return {"model": model, "optimizer": optimizer, "criterion": criterion, "train_loader": data, "eval_fnn": 1, "x": 1}

def wrong():
    return 3

def stopped():
    def step(model, batch, optimizer, criterion, device):
        raise KeyboardInterrupt

    return named() | {"train_step": step}

def partly():
    return {"model": None}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "training_for_a_test.py").write_text(TASK)
    yield
    sys.modules.pop("training_for_a_test", None)


def load_task(target, arguments=()):
    return pieces_of(load_task_function(target, arguments)(), target, TAKES)


def test_pieces_come_in_order_or_by_name():
    assert set(load_task("training_for_a_test.py:task")) == {"model", "optimizer", "criterion", "train_dataset"}
    assert load_task("training_for_a_test.py:named")["batch_size"] == 32


@pytest.mark.parametrize(
    "target, message",
    [
        ("training_for_a_test.py", "a file and a function"),
        ("nowhere.py:task", "no such file"),
        ("training_for_a_test.py:none", "no function none"),
        ("training_for_a_test.py:wrong", "must return"),
        (
            "training_for_a_test.py:misnamed",
            "train_loader, eval_fnn, x: Estimator takes no such argument",
        ),
        ("training_for_a_test.py:partly", "gives no optimizer, criterion, train_dataset"),
    ],
)
def test_what_is_wrong_is_said(target, message):
    with pytest.raises(UsageError, match=message):
        load_task(target)


def test_explore_at_the_command_line(monkeypatch):
    monkeypatch.setenv("GREENLOVE_SIM_CPU_TDP_W", "50")
    arguments = ["explore", "training_for_a_test.py:task", "--epochs", "20", "--budget", "1", "--country", "DE"]
    arguments += ["--workload", "recommendation", "--precision", "amp"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert "640 samples · batch 64 · 20 epochs" in done.output
    assert "Computed in bf16 (given); a recommendation model (given)." in done.output
    again = CliRunner().invoke(cli, ["explore", "--epochs", "100"])
    assert "100 epochs" in again.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["task", "--epochs", "0"], "Error: --epochs must be a whole number"),
        (["task"], "Error: give --epochs or --steps"),
        (["task", "--steps", "9", "--budget", "-1"], "Error: --budget must be"),
        (["task", "--steps", "9", "--batch-size", "0"], "Error: --batch-size must be"),
        (["task", "--steps", "9", "--workload", "poetry"], "Error: --workload must be language, "),
        (["misnamed", "--epochs", "3"], "train_loader"),
    ],
)
def test_a_mistake_at_the_command_line_is_told_by_its_options(arguments, message):
    done = CliRunner().invoke(cli, ["explore", f"training_for_a_test.py:{arguments[0]}", *arguments[1:]])
    assert done.exit_code == 1 and message in done.output, done.output


def test_ctrl_c_in_an_exploration_ends_with_130_and_says_what_is_left(monkeypatch):
    monkeypatch.setenv("GREENLOVE_SIM_CPU_TDP_W", "50")
    arguments = ["explore", "training_for_a_test.py:stopped", "--epochs", "20", "--budget", "1"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 130
    assert "stopped by Ctrl-C after 0 trials\n" in done.output
    assert "Aborted" not in done.output


def test_the_file_is_imported_with_its_own_arguments(tmp_path):
    (tmp_path / "training_for_a_test.py").write_text(TASK + "\nimport sys\nARGV = list(sys.argv)\n")
    argv = list(sys.argv)
    load_task("training_for_a_test.py:task", ("--width", "8"))
    assert sys.modules["training_for_a_test"].ARGV == ["training_for_a_test.py", "--width", "8"]
    assert sys.argv == argv


@pytest.mark.parametrize("name", ["click", "random"])
def test_a_file_named_like_a_library_does_not_take_its_place(tmp_path, name):
    (tmp_path / f"{name}.py").write_text(TASK)
    library = sys.modules.get(name)
    assert load_task(f"{name}.py:task")["model"] is not None
    assert sys.modules[name] is library
    sys.modules.pop(f"greenlove_task_{name}")

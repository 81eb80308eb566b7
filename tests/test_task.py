from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from greenlove_tracker.cli import cli
from greenlove_tracker.errors import UsageError
from greenlove_tracker.task import load_task

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

def wrong():
    return 3

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
        ("training_for_a_test.py:partly", "gives no optimizer, criterion, train_dataset"),
    ],
)
def test_what_is_wrong_is_said(target, message):
    with pytest.raises(UsageError, match=message):
        load_task(target)


def test_explore_at_the_command_line(monkeypatch):
    monkeypatch.setenv("GREENLOVE_SIM_CPU_TDP_W", "50")
    arguments = ["explore", "training_for_a_test.py:task", "--epochs", "20", "--budget", "1", "--country", "DE"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    assert "640 samples · batch 64 · 20 epochs" in done.output
    again = CliRunner().invoke(cli, ["forecast", "--epochs", "100"])
    assert "100 epochs" in again.output

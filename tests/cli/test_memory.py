from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from greenlove_tracker.cli import cli
from greenlove_tracker.rendering import terminal
from greenlove_tracker.report.gpu_report import memory_document, memory_record, memory_values
from greenlove_tracker.vocabulary.comparisons import MemoryRow

pytestmark = pytest.mark.usefixtures("no_settings")

TASK = """
import sys
import torch
from torch import nn
from torch.utils.data import TensorDataset

WIDTH = int(sys.argv[1]) if len(sys.argv) > 1 else 32


def task():
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    inputs = torch.randn(256, WIDTH)
    return model, torch.optim.Adam(model.parameters()), nn.MSELoss(), TensorDataset(inputs, inputs[:, :1])
"""
GB = 1024**3


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "train_small.py"
    path.write_text(TASK)
    return f"{path}:task"


def call(*arguments):
    return CliRunner().invoke(cli, ["project", "--memory", *arguments])


def test_json_holds_the_bytes(task):
    found = json.loads(call(task, "--json").stdout)
    (row,) = found["rows"]
    parts = ("parameters", "gradients", "optimizer", "activations")
    assert sum(row[f"{part}_bytes"] for part in parts) == row["peak_bytes"] > 0
    assert row["method"] == "measured step" and "L40S" in row["fits_on"] and row["too_large_for"] == []


def test_the_batch_size_counts(task):
    small, large = (json.loads(call(task, "--json", *more).stdout)["rows"][0] for more in ((), ("--batch-size", "256")))
    assert (small["batch_size"], large["batch_size"]) == (64, 256)
    assert large["activations_bytes"] > 2 * small["activations_bytes"]
    assert large["parameters_bytes"] == small["parameters_bytes"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--techniques", "amp-bf17"), "no technique is called 'amp-bf17': did you mean amp-bf16?"),
        (("--json", "--csv"), "--json and --csv: choose one"),
    ],
)
def test_a_bad_argument_is_said(task, arguments, message):
    result = call(task, *arguments)
    assert result.exit_code == 1 and message in result.stderr and result.stdout == ""


def row(name, peak_gb, reason=""):
    if peak_gb is None:
        return MemoryRow(name, reason=reason)
    part = int(peak_gb * GB / 4)
    return MemoryRow(name, part, part, part, part, 4 * part, "meta", batch_size=64)


def test_what_is_too_large_or_unknown_is_said_and_never_zero():
    rows = [row("baseline", 60.0), row("half+as-much", 21.0), row("huge", 900.0), row("amp-bf16", None, "not here")]
    text = terminal.render(memory_document(rows, "train.py:task"))
    assert "80 GB or more: " in text and "A100" in text and "32 GB or more: " in text
    assert "none: more than any GPU in the table holds" in text
    assert "amp-bf16: not here." in text and max(map(len, text.splitlines())) <= 100
    baseline, half, huge, unknown = memory_record(rows, "")["rows"]
    assert "A100 SXM4 80GB" in baseline["fits_on"] and "L40S" in baseline["too_large_for"]
    assert "L4" in half["may_fit_on"] and "L4" not in half["fits_on"]  # 21 of 21.8 GiB: within the error
    assert huge["fits_on"] == [] and huge["fits_from_gb"] is None
    assert unknown["peak_bytes"] is None and unknown["fits_on"] == unknown["too_large_for"] == []
    assert memory_values(rows[-1])["peak_gb"] is None and memory_values(rows[-1])["reason"] == "not here"
    assert terminal.render(memory_document(rows[3:], "x")).splitlines()[-1] == "  amp-bf16: not here."

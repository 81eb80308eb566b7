"""The rehearsal of a resume, held against whole trainings that are killed, whose weights are hashed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from checkpointing import shapes
from click.testing import CliRunner

from greenlove_tracker.cli import cli
from greenlove_tracker.cli.rehearsal import rehearse

pytestmark = [
    pytest.mark.usefixtures("no_settings"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="sessions and signals as Unix has them"),
]
ROOT = str(Path(shapes.__file__).parents[2])


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", ROOT)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.chdir(tmp_path)


def command(shape, directory, *words):
    return [sys.executable, shapes.__file__, shape, str(directory), *words]


def weights(shape, directory, *words):
    """Train, with a kill or without, and return the digest of the weights at the end; empty for none."""
    subprocess.run(command(shape, directory, *words), check=False, capture_output=True)
    found = directory / "digest"
    return found.read_text() if found.exists() else ""


@pytest.mark.slow
@pytest.mark.parametrize("shape", shapes.SHAPES)
def test_a_rehearsal_says_what_whole_trainings_show(shape, tmp_path):
    unbroken = weights(shape, tmp_path / "unbroken")
    assert unbroken
    chance = random.Random(shape)
    is_same = True
    for how in ([], ["--saves-each-epoch"]):
        number = chance.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
        directory = tmp_path / f"{number.name}{len(how)}"
        at = chance.randint(9 if how else 3, 17)
        assert not weights(shape, directory, "--kill-at", str(at), "--by", str(int(number)), *how)
        is_same = is_same and weights(shape, directory) == unbroken
    found, _ = rehearse(command(shape, tmp_path / "rehearsed"), 20)
    assert (found.differs == "") == is_same == (shape in [one.__name__ for one in shapes.IDENTICAL])


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("scheduler_not_passed", "OneCycleLR: pass scheduler="),
        ("enumerate_counts_anew", "checkpointer.position.batches"),
        ("truncated_backpropagation", "keeps hidden"),
        ("order_from_a_set", "the batches are others"),
        ("early_stopping_in_a_variable", "values"),
    ],
)
def test_the_likeliest_reason_is_named_and_the_training_keeps_nothing_of_it(shape, words, tmp_path):
    result = CliRunner().invoke(cli, ["checkpoints", "rehearse", "--", *command(shape, tmp_path / "t")])
    assert result.exit_code == 1, result.output
    assert words in " ".join(result.stdout.split())
    kept = [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    assert kept == ["t/checkpoints/rehearsal.json"]


@pytest.mark.slow
def test_a_rehearsal_holds_while_script_and_arguments_are_the_same(tmp_path):
    words = ("plain", tmp_path / "t")
    found, _ = rehearse(command(*words), 5)
    assert (found.differs, found.steps) == ("", 5)

    def listed():
        return json.loads(CliRunner().invoke(cli, ["checkpoints", str(tmp_path / "t/checkpoints"), "--json"]).stdout)

    weights(*words)
    assert [one["is_bit_identical"] for one in listed()["checkpoints"]] == [True]
    screen = CliRunner().invoke(cli, ["checkpoints", str(tmp_path / "t/checkpoints")]).stdout
    assert "identical *" in screen and "identical over 5 steps" in screen
    file = tmp_path / "t/checkpoints/rehearsal.json"
    changed = json.loads(file.read_text())
    changed["conditions"]["threads"] = "77"
    file.write_text(json.dumps(changed))
    assert listed()["checkpoints"][0]["is_bit_identical"] is None
    assert "not rehearsed" in CliRunner().invoke(cli, ["checkpoints", str(tmp_path / "t/checkpoints")]).stdout


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("print(1)", "made no Checkpointer"),
        ("raise ValueError('my own')", "exit code 1: "),
        (
            "from greenlove_tracker import Checkpointer\n"
            "for _ in Checkpointer('c').epochs(1, tracker=False): print('no batches')",
            "ended before it could be saved and resumed",
        ),
    ],
)
def test_what_cannot_be_rehearsed_is_said(script, words, tmp_path):
    (tmp_path / "train.py").write_text(script)
    result = CliRunner().invoke(cli, ["checkpoints", "rehearse", "--", sys.executable, "train.py"])
    assert result.exit_code == 1 and words in result.stderr


def test_a_command_is_asked_for():
    result = CliRunner().invoke(cli, ["checkpoints", "rehearse"])
    assert result.exit_code == 1 and "rehearse -- python train.py" in result.stderr


_RANKS = """
import torch
from torch import nn
from greenlove_tracker import Checkpointer
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
torch.manual_seed(torch.distributed.get_rank())
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters())
{scheduler}
data = torch.utils.data.TensorDataset(torch.randn(48, 4))
loader = torch.utils.data.DataLoader(data, 4, sampler=torch.utils.data.DistributedSampler(data))
checkpointer = Checkpointer("c", model=model, optimizer=optimizer)
for epoch in checkpointer.epochs(4, tracker=False):
    for (x,) in checkpointer.batches(loader):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        {step}
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_passed", [True, False])
def test_ranks_under_torchrun(is_passed, tmp_path):
    scheduler = "" if is_passed else "scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)"
    script = _RANKS.replace("{scheduler}", scheduler).replace("{step}", "" if is_passed else "scheduler.step()")
    (tmp_path / "train.py").write_text(script)
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    found, said = rehearse(words, 8)
    assert (found.differs == "") == is_passed, said
    assert found.conditions["ranks"] == "2"

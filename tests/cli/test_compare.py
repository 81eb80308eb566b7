"""``greenlove compare``: what it asks for, what it says, and what it writes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from comparison_samples import four_arms
from report_samples import cpu_energy, epoch_row, write_run

from greenlove_tracker.cli import cli
from greenlove_tracker.techniques.technique import TECHNIQUES
from greenlove_tracker.vocabulary.comparisons import Comparison

TASK = """
import sys
import torch
from torch import nn

def task():
    print("the task says", *sys.argv[1:])
    x = torch.randn(640, 64)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    return {"model": model, "optimizer": optimizer, "criterion": nn.CrossEntropyLoss(), "train_dataset": data,
            "total_epochs": 50, "batch_size": 32}
"""

pytestmark = pytest.mark.usefixtures("no_settings")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TASK)
    return tmp_path


@pytest.fixture
def asked(monkeypatch, folder: Path) -> list[tuple]:
    """What the comparison is called with; it answers with four arms."""
    from greenlove_tracker.techniques import compare as home

    calls: list[tuple] = []
    run = write_run(folder / "greenlove_logs", [epoch_row(1, 5.0)], "one")

    def fake(task, techniques, **settings) -> Comparison:
        calls.append((task, techniques, settings))
        sys.stdout.write("training\n")
        return four_arms(run_dir=run.path)

    monkeypatch.setattr(home, "compare", fake)
    return calls


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["compare", *arguments])


def refused(*arguments: str) -> str:
    done = call(*arguments)
    assert done.exit_code == 1 and done.output.startswith("Error: ") and done.output.count("\n") == 1, done.output
    return done.output.removeprefix("Error: ").strip()


# -- What it asks for --


def test_without_torch_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("greenlove_tracker.vocabulary.errors.find_spec", lambda name: None)
    said = refused("train.py:task", "--techniques", "amp-bf16")
    assert "comparing needs torch" in said and "[torch]" in said
    assert call("--list").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a training, such as greenlove compare train.py:task --techniques amp-bf16, or two runs"),
        (("logs",), "name a training"),
        (("train.py",), "train.py must name a function in it too, such as train.py:task"),
        (("train.py:task", "other.py:task", "--techniques", "tf32"), "one training is compared with itself"),
        (("train.py", "--techniques", "tf32"), "train.py must name a function in it too, such as train.py:task"),
        (("a", "b", "--techniques", "tf32"), "logged runs are compared as they are: leave --techniques out"),
        (("a", "b", "--budget", "5"), "leave --budget out"),
        (("a", "b", "--batch-size", "5"), "leave --batch-size out"),
        (("a", "b", "--", "--lr", "3"), "leave what stands after -- out"),
        (("a", "b"), "a"),
        (("train.py:task", "--techniques", "tf32", "-o", "x.txt"), ".pdf, .html and .md can be written"),
        (("train.py:task", "--techniques", "tf32", "-o", "no/x.pdf"), "no"),
        (("none.py:task", "--techniques", "tf32"), "no such file: none.py"),
        (("train.py:tusk", "--techniques", "tf32"), "train.py has no function tusk()"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(arguments, said):
    assert said in refused(*arguments)


# -- Techniques in trials --


def test_the_options_reach_the_comparison(asked, folder: Path):
    options = (
        "--budget",
        "40",
        "--epochs",
        "7",
        "--batch-size",
        "16",
        "--country",
        "DE",
        "--project",
        "p",
        "--seed",
        "3",
    )
    names = "amp-bf16, grad-accumulation=4,amp-bf16+compile"
    done = call("train.py:task", "--techniques", names, *options, "--log-dir", "logs", "--", "--lr", "3")
    assert done.exit_code == 0, done.output
    ((task, techniques, settings),) = asked
    assert techniques == ["amp-bf16", "grad-accumulation=4", "amp-bf16+compile"]
    assert settings == {"budget_s": 40.0, "seed": 3, "country": "DE", "project": "p", "log_dir": "logs"}
    parts = task()
    assert (parts["total_epochs"], parts["total_steps"], parts["batch_size"]) == (7, None, 16)
    assert task.__name__ == "train.py:task"


def test_the_task_finds_the_arguments_behind_the_dashes(asked, capsys):
    call("train.py:task", "--techniques", "tf32", "--", "--lr", "3")
    asked[0][0]()
    assert capsys.readouterr().out == "the task says --lr 3\n"


def test_json_has_stdout_to_itself(asked):
    done = call("train.py:task", "--techniques", "tf32", "--json")
    assert json.loads(done.stdout)["rows"][0]["name"] == "amp-bf16"
    assert "training" in done.stderr


@pytest.mark.slow
def test_a_tiny_training_end_to_end(folder: Path, monkeypatch):
    """Two names for ways that do the same work: nothing but the words of the verdict is open."""
    own = "greenlove_tracker.techniques.same_work"
    module = type(sys)(own)
    from greenlove_tracker.techniques import technique as registry

    module.technique = lambda name, value: registry.Technique(name, lambda parts: parts)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, own, module)
    monkeypatch.setitem(registry.TECHNIQUES, "same-work", registry.ListedTechnique("same_work", "the same work"))
    done = call("train.py:task", "--techniques", "same-work", "--budget", "8", "-o", "saves.pdf")
    assert done.exit_code == 0, done.output
    assert "same-work" in done.stdout or done.stdout.count("Nothing was measured") == 1  # on a machine that is busy
    (run_dir,) = (folder / "greenlove_logs").iterdir()
    names = {path.name for path in run_dir.iterdir()}
    assert {"comparison.csv", "comparison_trials.csv", "run.csv"} <= names
    assert (folder / "saves.pdf").read_bytes().startswith(b"%PDF")
    report = CliRunner().invoke(cli, ["report", str(run_dir), "-o", "again.md"])
    text = (folder / "again.md").read_text()
    assert report.exit_code == 0 and "# Comparison" in text and "## What the comparison itself took" in text
    assert "comparison" in CliRunner().invoke(cli, ["report", "--by", "kind"]).stdout
    assert "compared" in CliRunner().invoke(cli, ["watch", "--once"]).stdout


# -- Techniques as the help and the guide name them, on the tutorial's own task --

ROOT = Path(__file__).parents[2]
GIVEN = {"batch-size": "batch-size=128", "early-stopping": "early-stopping=5", "power-limit": "power-limit=200"}
GIVEN |= {"grad-accumulation": "grad-accumulation=4", "curriculum": "curriculum=4", "num-workers": "num-workers=2"}
# What this task cannot, on a machine without a GPU.
CANNOT = {
    "activation-checkpointing": "has no repeated blocks",
    "channels-last": "has no 2-d convolution",
    "curriculum": "only whole trainings show",
    "early-stopping": "only whole trainings show",
    "lr-schedule": "only whole trainings show",
    "pin-memory": "only copies to a CUDA GPU",
    "power-limit": "not on an NVIDIA GPU",
    "tf32": "NVIDIA's GPUs",
}


@pytest.fixture
def tutorial(folder: Path) -> Path:
    text = (ROOT / "docs/tutorial.md").read_text()
    code = next(block for block in text.split("```python")[1:] if "def task()" in block).partition("```")[0]
    (folder / "train.py").write_text(code)
    return folder


def as_typed(names: str, budget: str) -> str:
    done = call("train.py:task", "--techniques", names, "--budget", budget)
    assert done.exit_code == 0, (done.output, done.exception)
    assert "Traceback" not in done.output and "MemTracker" not in done.output
    return " ".join(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TECHNIQUES if name != "compile"])
def test_each_technique_as_typed_runs_on_the_tutorials_task_or_says_its_own_reason(tutorial: Path, name):
    said = as_typed(GIVEN.get(name, name), "6")
    if name in CANNOT:
        assert f"{GIVEN.get(name, name)} not run: " in said and CANNOT[name] in said
    else:
        assert "not run" not in said


@pytest.mark.slow
@pytest.mark.parametrize("names", ["amp-bf16,grad-accumulation=4", "compile,amp-bf16,amp-bf16+compile"])
def test_several_as_typed(tutorial: Path, names):
    said = as_typed(names, "60")
    assert "not run" not in said and "peak memory" in said
    assert "Nothing was measured" not in said


@pytest.mark.slow
def test_what_is_of_whole_trainings_is_compared_in_full(folder: Path):
    (folder / "train.py").write_text(TASK.replace('"total_epochs": 50', '"total_epochs": 3'))
    done = call("train.py:task", "--techniques", "lr-schedule", "--full")
    assert done.exit_code == 0, done.output
    assert "lr-schedule" in done.stdout and "3 of 3 epochs" in done.stdout
    (written,) = folder.glob("greenlove_experiments/compare-train-task/report.html")
    assert "lr-schedule" in written.read_text()
    assert "leave --budget out" in refused("train.py:task", "--techniques", "tf32", "--full", "--budget", "5")


def test_the_memory_of_micro_batches_as_typed(tutorial: Path):
    done = CliRunner().invoke(cli, ["project", "--memory", "train.py:task", "--techniques", "grad-accumulation=4"])
    assert done.exit_code == 0 and "grad-accumulation=4" in done.stdout and "Error" not in done.stdout


ODD = """
import torch
from torch import nn
from torch.nn import functional as F

x, y = torch.randn(320, 16), torch.randint(4, (320,))

def parts(**more):
    model = more.pop("model", None) or nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = more.pop("optimizer", torch.optim.Adam)(model.parameters())
    data = torch.utils.data.TensorDataset(x, y)
    return {"model": model, "optimizer": optimizer, "criterion": nn.CrossEntropyLoss(), "train_dataset": data} | more

def contrastive():
    def loss(model, batch):
        one, two = model(batch[0]), model(batch[0] + 0.1)
        return F.cross_entropy(one @ two.T, torch.arange(len(one)))
    return parts(loss=loss)

def returns_a_dict():
    return parts(loss=lambda model, batch: {"loss": F.cross_entropy(model(batch[0]), batch[1])})

def without_gradient():
    calls = []
    def loss(model, batch):
        calls.append(1)
        found = F.cross_entropy(model(batch[0]), batch[1])
        return found.detach() if len(calls) % 3 == 0 else found
    return parts(loss=loss)

def never_with_gradient():
    return parts(loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]).detach())

def not_finite():
    return parts(loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]) * float("nan"))

def sparse():
    model = nn.Sequential(nn.EmbeddingBag(100, 8, sparse=True), nn.Linear(8, 4))
    words = torch.utils.data.TensorDataset(torch.randint(100, (320, 5)), y)
    return parts(model=model, optimizer=lambda p: torch.optim.SGD(p, lr=0.1), train_dataset=words)

def one_batch():
    return parts(train_dataset=torch.utils.data.TensorDataset(x[:32], y[:32]))

def lbfgs():
    return parts(optimizer=torch.optim.LBFGS)

def many_numbers():
    return parts(criterion=nn.CrossEntropyLoss(reduction="none"))

def no_module():
    return parts() | {"model": lambda inputs: inputs}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "function", ["contrastive", "returns_a_dict", "without_gradient", "not_finite", "sparse", "one_batch"]
)
def test_odd_but_right_trainings_are_compared(folder: Path, function):
    (folder / "train.py").write_text(ODD)
    done = call(f"train.py:{function}", "--techniques", "grad-accumulation=2", "--budget", "6")
    assert done.exit_code == 0 and "not run" not in done.stdout, (done.output, done.exception)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("never_with_gradient", "the loss has no gradient"),
        ("lbfgs", "only a train_step of the task does that"),
        ("many_numbers", "the loss is a tensor of 64 numbers"),
        ("no_module", "must be a torch.nn.Module"),
    ],
)
def test_a_training_that_no_step_can_be_made_of_says_what_to_do(folder: Path, function, said):
    (folder / "train.py").write_text(ODD)
    assert said in refused(f"train.py:{function}", "--techniques", "grad-accumulation=2", "--budget", "6")


# -- Logged runs --


def logged(folder: Path, name: str, epoch_s: float, n_runs: int = 3) -> Path:
    for i in range(n_runs):
        rows = [epoch_row(e, epoch_s * (1 + 0.002 * ((i + e) % 3)), cpu_energy(epoch_s)) for e in range(1, 21)]
        started = f"2026-11-0{1 + i}T10:00:00Z"
        write_run(folder / name, rows, f"{name}-{i}", fields={"started_at": started, "epochs_planned": "20"})
    return folder / name


def test_directories_of_runs_are_compared(folder: Path):
    logged(folder, "before", 10.0)
    logged(folder, "after", 8.0)
    done = call("before", "after", "-o", "runs.html")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("after saves 20.0% of the") or done.stdout.startswith("after saves 20% of the")
    assert "after (3 runs)" in done.stdout and "against before" in done.stdout
    assert "How the runs compare" in (folder / "runs.html").read_text()
    read = json.loads(call("before", "after", "--json").stdout)
    assert read["is_of_runs"] and read["rows"][0]["time_ratio"]["point"] == pytest.approx(0.8, rel=0.01)

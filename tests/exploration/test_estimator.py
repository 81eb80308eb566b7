"""Exploring small real trainings."""

from __future__ import annotations

import contextlib
import gc
import math
import weakref

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from greenlove_tracker import Estimator, read_logs  # noqa: E402
from greenlove_tracker.extrapolation.explorations import exploration_of  # noqa: E402
from greenlove_tracker.vocabulary.errors import UsageError  # noqa: E402

N, WIDTH = 6400, 16


@pytest.fixture(autouse=True, scope="module")
def collections_are_short():
    """Leave what other tests have loaded out of the garbage collector's walks: they take a second, within a trial."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def pieces(n=N):
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(n, WIDTH), torch.randint(0, 4, (n,)))
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.BatchNorm1d(32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 4))
    return model, torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss(), data


def explore(model, optimizer, criterion, data, tmp_path, *, epochs=50, **arguments):
    settings = {"verbose": 0, "log_dir": tmp_path, "sim_cpu_tdp_w": 50.0, "budget_s": 4.0, "country": "DE"}
    return Estimator(model, optimizer, criterion, data, epochs, **(settings | arguments)).estimate()


def train(model, optimizer, criterion, loader, epochs=2):
    losses = []
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.slow
def test_it_forecasts_and_writes_what_it_timed(tmp_path):
    estimation = explore(*pieces(), tmp_path)
    forecast = estimation.forecast
    assert forecast.duration_s.lower < forecast.duration_s.point < forecast.duration_s.upper
    assert forecast.plan.batches_per_epoch == 100 and forecast.plan.n_epochs == 50
    assert len({t.batches for t in estimation.trials}) >= 2 and estimation.continues
    run = read_logs(tmp_path).runs[0]
    assert run.trials == estimation.trials and run.problems == []
    assert run.summary.status == "finished" and run.summary.energy_kwh > 0
    assert 0.05 < estimation.peak_memory_gb < 64 and estimation.gpu_power_w is None
    assert float(run.text("peak_memory_gb")) == pytest.approx(estimation.peak_memory_gb, rel=0.01)
    page = (estimation.run_dir / "dashboard.html").read_text()
    assert "6,400 samples · batch 64 · 50 epochs" in page and "<svg" in page


def test_a_failing_step_leaves_no_trace_and_stays_the_users_error(tmp_path):
    model, optimizer, criterion, data = pieces()
    before = [p.clone() for p in model.parameters()]

    def step(model, batch, optimizer, criterion, device):
        train(model, optimizer, criterion, [batch], 1)
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        explore(model, optimizer, criterion, data, tmp_path, train_step=step)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert optimizer.state_dict()["state"] == {}
    assert read_logs(tmp_path).runs[0].summary.status == "failed"


@pytest.mark.slow
def test_a_loss_that_is_no_number_is_named(tmp_path):
    def step(*arguments):
        return math.nan

    forecast = explore(*pieces(), tmp_path, train_step=step).forecast
    assert not forecast.is_reliable and "NAN" in {w.name for w in forecast.warnings}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"data": TensorDataset(torch.randn(0, WIDTH))}, "empty"),
        ({"data": iter([1, 2])}, "one-shot"),
        ({"data": 5}, "must be a data set"),
        ({"epochs": 0}, "at least 1"),
        ({"budget_s": 0}, "budget_s"),
        ({"device": "cuda"}, "the model is on cpu"),
        ({"on_no_terminal": "ask"}, "on_no_terminal"),
        ({"also_restore": [object()]}, "also_restore"),
        ({"country": "Atlantis"}, "Atlantis"),
    ],
)
def test_bad_arguments_are_said_before_anything_runs(tmp_path, change, message):
    model, optimizer, criterion, data = pieces(64)
    data = change.pop("data", data)
    with pytest.raises(UsageError, match=message):
        explore(model, optimizer, criterion, data, tmp_path, **change)


def test_batches_of_another_shape_need_a_train_step(tmp_path):
    model, optimizer, criterion, _ = pieces(64)
    batches = [{"input_ids": torch.zeros(4, WIDTH)}] * 10
    with pytest.raises(UsageError, match="train_step="):
        explore(model, optimizer, criterion, batches, tmp_path)


def test_without_a_terminal_the_training_does_not_go_on_where_it_is_told_to_stop(tmp_path):
    assert not explore(*pieces(640), tmp_path, budget_s=1.0, verbose=1, on_no_terminal="stop").continues


def test_out_of_memory_is_said_and_no_smaller_batch_is_tried(tmp_path):
    def step(*arguments):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    with pytest.raises(UsageError, match=r"out of memory at batch size 64.*20\.00 GiB.*not tried in silence"):
        explore(*pieces(), tmp_path, train_step=step)
    assert read_logs(tmp_path).runs[0].summary.status == "failed"


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_holds_the_training_once_it_is_explored(tmp_path, fails):
    def step(*arguments):
        if fails:
            raise ZeroDivisionError

    model, optimizer, criterion, data = pieces(640)
    loader = DataLoader(data, 64)
    gc.disable()  # which a worker of a loader is not to wait for: torch lets it hang for 5 s there
    try:
        with contextlib.suppress(ZeroDivisionError):
            explore(model, optimizer, criterion, loader, tmp_path, train_step=step, budget_s=2.0)
        held = [weakref.ref(model), weakref.ref(loader)]
        del model, optimizer, data, loader
        assert [reference() for reference in held] == [None, None]
    finally:
        gc.enable()


@pytest.mark.slow
def test_on_a_cpu_the_peak_on_a_gpu_is_estimated_for_the_projection(tmp_path, monkeypatch):
    monkeypatch.setattr("greenlove_tracker.exploration.estimator._MEMORY_SHARE", 0.6)  # it loads torch's tools once
    model, optimizer, criterion, data = pieces()
    estimation = explore(model, optimizer, criterion, data, tmp_path, budget_s=8.0)
    weights_gb = sum(p.numel() * p.element_size() for p in model.parameters()) / 2**30
    assert weights_gb < estimation.gpu_memory_estimate_gb < 100 * weights_gb + 0.01
    run = read_logs(tmp_path).runs[0]
    assert float(run.text("gpu_memory_estimate_gb")) == pytest.approx(estimation.gpu_memory_estimate_gb, 0.01)
    assert exploration_of(run).gpu_memory_estimate_gb == pytest.approx(estimation.gpu_memory_estimate_gb, rel=0.01)
    assert {row.fits for row in estimation.projections[1:]} == {True}
    assert "goes by an estimated peak of memory" in estimation.page.read_text()


class Reader(nn.Module):
    """Reads four tokens, with attention."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(1000, 16)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens):
        return self.head(self.body(self.tokens(tokens)).mean(1))


def step_in_bf16(model, batch, optimizer, criterion, device):
    inputs, targets = batch
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = criterion(model(inputs), targets)
    loss.backward()
    optimizer.step()


def reading():
    model = Reader()
    data = TensorDataset(torch.randint(0, 1000, (640, 4)), torch.randint(0, 4, (640,)))
    return model, torch.optim.SGD(model.parameters(), 0.1), nn.CrossEntropyLoss(), data


def kind_of(run):
    return [run.text(name) for name in ("precision", "precision_basis", "workload", "workload_basis")]


@pytest.mark.slow
def test_precision_and_workload_are_seen_and_no_hook_stays(tmp_path, capsys):
    model, *others = reading()
    explore(model, *others, tmp_path, train_step=step_in_bf16, budget_s=1.0, verbose=1, asks=False)
    run = read_logs(tmp_path).runs[0]
    assert kind_of(run) == ["bf16", "autocast", "language", "embeddings and attention in 2 layers"]
    assert not any(part._forward_pre_hooks for part in model.modules())

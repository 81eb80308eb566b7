"""The memory of a training: against what torch's allocator gave, and without leaving a trace."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from techniques.memory_samples import profiled_peak_bytes, with_optimizer
from techniques.task_samples import digits_task, transformer_task
from torch import nn
from torch.utils.data import TensorDataset

from greenlove_tracker.tables.gpus import gpus
from greenlove_tracker.techniques.memory import estimate_memory
from greenlove_tracker.techniques.technique import NotApplicableError, Technique
from greenlove_tracker.vocabulary.errors import UsageError

WIDTH, BATCH = 64, 16
ADAM, SGD = functools.partial(torch.optim.Adam, lr=1e-3), functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def chain(optimizer=ADAM):
    """A task of equal linear layers, whose parts of memory can be told by hand."""

    def task():
        model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(8)))
        return {
            "model": model,
            "optimizer": optimizer(model.parameters()),
            "criterion": nn.MSELoss(),
            "train_dataset": TensorDataset(torch.randn(2 * BATCH, WIDTH), torch.randn(2 * BATCH, WIDTH)),
            "batch_size": BATCH,
        }

    return task


CHAIN_BYTES = 8 * (WIDTH * WIDTH + WIDTH) * 4  # weights and biases of eight layers


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [ADAM, SGD], ids=["Adam", "SGD"])
@pytest.mark.parametrize("make", [digits_task, transformer_task])
def test_the_estimate_is_within_a_tenth_of_the_measured_peak(make, optimizer):
    """Of five trainings: `benchmarks/memory.py`."""
    torch.manual_seed(0)
    task = with_optimizer(make, optimizer)
    measured = profiled_peak_bytes(task)
    (row,) = estimate_memory(task, as_on_gpu=False)
    assert row.method == "measured step"
    assert row.peak_bytes == pytest.approx(measured, rel=0.05)
    (as_on_gpu,) = estimate_memory(task)
    assert as_on_gpu.peak_bytes == pytest.approx(measured, rel=0.1)


def test_each_part_is_what_it_is_by_hand():
    (row,) = estimate_memory(chain(), as_on_gpu=False)
    states = 2 * CHAIN_BYTES + 16 * 4  # of Adam, and 16 numbers of steps
    assert row.parameters_bytes == CHAIN_BYTES and row.batch_size == BATCH
    assert row.gradients_bytes == CHAIN_BYTES and row.optimizer_bytes == states
    parts = (row.parameters_bytes, row.gradients_bytes, row.optimizer_bytes, row.activations_bytes)
    assert sum(parts) == row.peak_bytes and row.reason == ""


def twice(model, batch):
    """A loss that calls its model twice, as contrastive ones do."""
    return nn.functional.mse_loss(model(batch[0]), model(batch[0] + 1.0)) + model(batch[0]).square().mean()


def test_a_loss_that_calls_its_model_twice_and_micro_batches_are_followed():
    once, accumulated = estimate_memory(lambda: {**chain()(), "batch_size": 2 * BATCH}, ["grad-accumulation=4"])
    assert accumulated.reason == "" and accumulated.peak_bytes <= once.peak_bytes
    called_twice, *_ = estimate_memory(lambda: {**chain()(), "loss": twice})
    assert called_twice.activations_bytes > once.activations_bytes / 2 and called_twice.reason == ""


def test_sparse_gradients_are_followed_too():
    def task():
        model = nn.Sequential(nn.Embedding(50, WIDTH, sparse=True), nn.Flatten(), nn.Linear(4 * WIDTH, 1))
        words = torch.randint(50, (2 * BATCH, 4))
        data = TensorDataset(words, torch.randn(2 * BATCH, 1))
        return model, torch.optim.SGD(model.parameters(), lr=0.1), nn.MSELoss(), data

    (row,) = estimate_memory(task)
    assert row.method == "measured step" and row.peak_bytes > row.parameters_bytes > 0


def test_on_a_gpu_an_optimizer_takes_all_parameters_at_once():
    here, there = (estimate_memory(chain(), as_on_gpu=on_gpu)[0] for on_gpu in (False, True))
    assert there.peak_bytes > here.peak_bytes + CHAIN_BYTES / 2  # roots of the second moments
    looping = chain(optimizer=functools.partial(torch.optim.Adam, foreach=False))
    (row,) = estimate_memory(looping)
    assert row.peak_bytes < there.peak_bytes - CHAIN_BYTES / 2


@pytest.mark.slow
def test_recomputed_activations_are_seen_and_no_trace_is_left():
    parts = transformer_task(batch_size=128)
    model, random_state = parts["model"], torch.get_rng_state()
    before = copy.deepcopy((model.state_dict(), [p.grad for p in model.parameters()], parts["optimizer"].state_dict()))
    plain, less = estimate_memory(lambda: dict(parts), ["activation-checkpointing"], seed=7)
    assert less.activations_bytes < 0.6 * plain.activations_bytes
    assert less.parameters_bytes == plain.parameters_bytes
    assert all(torch.equal(a, b) for a, b in zip(before[0].values(), model.state_dict().values(), strict=True))
    assert [p.grad for p in model.parameters()] == before[1] and parts["optimizer"].state_dict() == before[2]
    assert torch.equal(torch.get_rng_state(), random_state)


def test_a_model_larger_than_this_machine_is_estimated_on_meta():
    def task():
        with torch.device("meta"):
            model = nn.Sequential(*(nn.Linear(8192, 8192) for _ in range(100)))
        inputs = torch.randn(8, 8192)
        return model, torch.optim.AdamW(model.parameters()), nn.MSELoss(), TensorDataset(inputs, inputs)

    (row,) = estimate_memory(task)
    assert row.method == "meta" and row.parameters_bytes == 100 * (8192 * 8192 + 8192) * 4  # 25 GiB
    assert 4 * row.parameters_bytes < row.peak_bytes < 5.2 * row.parameters_bytes
    assert gpus()["H100 SXM5 80GB"].holds(row.peak_bytes / 2**30) is False
    assert gpus()["B200 SXM"].holds(row.peak_bytes / 2**30) is True


def test_what_cannot_be_used_or_fails_is_a_row_with_its_reason():
    def refuse(parts):
        raise NotApplicableError("this CPU cannot")

    def break_it(parts):
        return parts | {"model": nn.Linear(3, 3)}

    def compiled(parts):
        return parts | {"model": torch.compile(parts["model"])}

    own = [Technique("refused", refuse), Technique("broken", break_it), Technique("compiled", compiled)]
    baseline, *rows = estimate_memory(chain(), own)
    assert baseline.peak_bytes and all(row.peak_bytes is None and row.method == "" for row in rows)
    assert rows[0].reason == "this CPU cannot" and rows[1].reason.startswith("RuntimeError: mat1 and mat2")
    assert "greenlove compare" in rows[2].reason


def test_errors_of_the_task_itself_are_raised():
    with pytest.raises(UsageError, match="no technique is called"):
        estimate_memory(chain(), ["amp-bf17"])
    with pytest.raises(UsageError, match="must return"):
        estimate_memory(lambda: 3)
    with pytest.raises(ZeroDivisionError):
        estimate_memory(lambda: {**chain()(), "loss": lambda model, batch: 1 / 0})

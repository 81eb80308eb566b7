"""Trainings of many shapes: those whose resume is identical, and those whose resume is not.

``python shapes.py SHAPE DIRECTORY [--kill-at N --by SIGNAL --saves-each-epoch]`` trains one of them, and writes a
digest of its weights into the directory at its end.
"""

from __future__ import annotations

import argparse
import copy
import functools
import hashlib
import itertools
import math
import os
import random
import signal
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler, swa_utils
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset, WeightedRandomSampler

from greenlove_tracker import Checkpointer

EPOCHS, BATCHES = 3, 6


class Life:
    """One process of a training; ``tick`` behind each batch kills it where it is asked to."""

    def __init__(self, directory, kill_at=0, by=int(signal.SIGKILL), *, saves_each_epoch=False):
        self.directory = Path(directory)
        self._kill_at, self._by, self._saves_each_epoch = kill_at, by, saves_each_epoch
        self._done = 0

    def checkpointer(self, **parts):
        often = {"every_s": None, "every_epochs": 1 if self._saves_each_epoch else None}
        self._checkpointer = Checkpointer(self.directory / "checkpoints", **parts, **often)
        return self._checkpointer

    def tick(self):
        self._done += 1
        if self._done == self._kill_at - 1 and not self._saves_each_epoch:
            self._checkpointer.save()
        if self._done == self._kill_at:
            os.kill(os.getpid(), self._by)

    def done(self, *models):
        found = hashlib.sha256()
        for model in models:
            for value in (*model.parameters(), *model.buffers()):
                found.update(value.detach().contiguous().numpy().tobytes())
        (self.directory / "digest").write_text(found.hexdigest())


def data():
    x = torch.randn(BATCHES * 4, 6)
    return TensorDataset(x, x.sum(1, keepdim=True))


def loader(dataset=None, **arguments):
    return DataLoader(data() if dataset is None else dataset, **{"batch_size": 4, "shuffle": True, **arguments})


def net(*inner):
    return nn.Sequential(nn.Linear(6, 8), *inner, nn.Linear(8, 1))


def adam(model, lr=0.01):
    return torch.optim.AdamW(model.parameters(), lr)


def step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(life, batches=None, model=None, optimizer=None, loss=None, **parts):
    """Train as the README does; a shape changes a part of it."""
    model = model or net()
    optimizer = optimizer or adam(model)
    batches = loader() if batches is None else batches
    checkpointer = life.checkpointer(model=model, optimizer=optimizer, **parts)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, y in checkpointer.batches(batches):
            step(optimizer, (loss or functional.mse_loss)(model(x), y))
            life.tick()
    life.done(model)


# -- A resume is identical --


def plain(life):
    train(life)


def dropout_and_batch_norm(life):
    train(life, model=net(nn.BatchNorm1d(8), nn.Dropout(0.3)))


def workers(life):
    train(life, loader(num_workers=2))


class Augmented(Dataset):
    def __init__(self, generator=None):
        self.data, self.generator = data(), generator

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        x, y = self.data[index]
        noise = np.random.rand() if self.generator is None else self.generator.random()
        return x + np.float32(noise) + random.random(), y


def augmentation_by_numpy_and_python(life):
    train(life, loader(Augmented()))


def generator_in_the_data_set_with_workers(life):
    train(life, loader(Augmented(np.random.default_rng(3)), num_workers=1))


def weighted_sampler(life):
    train(life, loader(shuffle=False, sampler=WeightedRandomSampler(torch.rand(24), 24)))


def generator_of_the_loader(life):
    train(life, loader(generator=torch.Generator().manual_seed(1)))


class Stream(IterableDataset):
    def __init__(self):
        self.data = data()

    def __iter__(self):
        return iter([self.data[index] for index in torch.randperm(24).tolist()])


def iterable_data_set(life):
    train(life, DataLoader(Stream(), batch_size=4))


def scheduler_on_plateau(life):
    model = net()
    optimizer = adam(model, 0.1)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.1)
    batches = loader()
    checkpointer = life.checkpointer(model=model, optimizer=optimizer, scheduler=scheduler)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, y in checkpointer.batches(batches):
            loss = functional.mse_loss(model(x), y)
            step(optimizer, loss)
            life.tick()
        scheduler.step(loss.item())
    life.done(model)


def lbfgs(life):
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=3)
    batches = loader()
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, y in checkpointer.batches(batches):

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = functional.mse_loss(model(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)
            life.tick()
    life.done(model)


def accumulation_across_a_checkpoint(life):
    model = net()
    optimizer = adam(model)
    batches = loader()
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for number, (x, y) in enumerate(checkpointer.batches(batches), checkpointer.position.batches):
            functional.mse_loss(model(x), y).backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
            life.tick()
    life.done(model)


def scaler_on_the_cpu(life):
    model = net()
    optimizer = adam(model)
    scaler = torch.amp.GradScaler("cpu", growth_interval=4)
    batches = loader()
    checkpointer = life.checkpointer(model=model, optimizer=optimizer, scaler=scaler)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, y in checkpointer.batches(batches):
            with torch.autocast("cpu"):
                loss = functional.mse_loss(model(x).float(), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            life.tick()
    life.done(model)


def _gan(life, passes_gradients):
    maker, judge = nn.Linear(3, 6), nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(), nn.Linear(8, 1))
    of_maker, of_judge = adam(maker), adam(judge)
    batches = loader()
    checkpointer = life.checkpointer(model=[maker, judge], optimizer=[of_maker, of_judge])
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, _ in checkpointer.batches(batches):
            made = maker(torch.randn(4, 3)).detach()
            (functional.softplus(judge(made)) + functional.softplus(-judge(x))).mean().backward()
            of_judge.step()
            of_judge.zero_grad()
            functional.softplus(-judge(maker(torch.randn(4, 3)))).mean().backward()
            of_maker.step()
            of_maker.zero_grad()
            if not passes_gradients:
                of_judge.zero_grad()
            life.tick()
    life.done(maker, judge)


def gan(life):
    _gan(life, passes_gradients=False)


def gan_that_leaves_gradients(life):
    _gan(life, passes_gradients=True)


def sparse_embeddings(life):
    model = nn.EmbeddingBag(24, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), 0.01)
    batches = DataLoader(torch.arange(24).view(-1, 1), batch_size=4, shuffle=True)
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x in checkpointer.batches(batches):
            optimizer.zero_grad(set_to_none=False)
            model(x).square().mean().backward()
            optimizer.step()
            life.tick()
    life.done(model)


def lazy_modules(life):
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(1))
    train(life, model=model)


def groups_from_a_set(life):
    model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(5)], nn.Linear(6, 1))
    named = dict(model.named_parameters())
    decay = {name for name in named if name.endswith("weight")}
    groups = [{"params": [named[n] for n in decay], "weight_decay": 0.1}]
    groups += [{"params": [named[n] for n in named.keys() - decay]}]
    train(life, model=model, optimizer=torch.optim.Adam(groups, 0.05, foreach=False))


def unfrozen_at_an_epoch(life, adds_group=True):
    model = net(nn.Linear(8, 8))
    model[0].requires_grad_(False)
    optimizer = adam(model[1:]) if adds_group else adam(model)
    batches = loader()
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for epoch in checkpointer.epochs(EPOCHS, tracker=False):
        if epoch == 1:
            model[0].requires_grad_(True)
            if adds_group:
                optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.001})
        for x, y in checkpointer.batches(batches):
            step(optimizer, functional.mse_loss(model(x), y))
            life.tick()
    life.done(model)


def unfrozen_without_a_group(life):
    unfrozen_at_an_epoch(life, adds_group=False)


class Annealed(nn.Module):
    """With a counter, a rate, and a buffer that its first forward makes."""

    def __init__(self):
        super().__init__()
        self.inner, self.n_calls, self.rate, self.is_ready = nn.Linear(6, 1), 0, 1.0, False

    def forward(self, x):
        if not self.is_ready:
            self.register_buffer("mean", x.mean(0))
            self.is_ready = True
        self.n_calls += 1
        self.rate *= 0.9
        self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return self.inner(x - self.rate * self.mean) * (1 + self.n_calls / 10)


def numbers_of_a_module(life):
    train(life, model=Annealed())


def average_that_is_passed(life, passes=True):
    model = net()
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = adam(model)
    batches = loader()
    models = {"model": model, "average": average} if passes else model
    checkpointer = life.checkpointer(model=models, optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, y in checkpointer.batches(batches):
            step(optimizer, functional.mse_loss(model(x), y))
            average.update_parameters(model)
            life.tick()
    life.done(model, average)


def early_stopping_in_values(life, keeps=True):
    model = net()
    optimizer = adam(model, 0.3)
    batches = loader()
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    values = checkpointer.values if keeps else {}
    values |= {"best": math.inf, "bad": 0} | values
    for _ in checkpointer.epochs(8, tracker=False):
        total = 0.0
        for x, y in checkpointer.batches(batches):
            loss = functional.mse_loss(model(x), y)
            step(optimizer, loss)
            total = loss.item()
            life.tick()
        values["bad"] = 0 if total < values["best"] * 0.5 else values["bad"] + 1
        values["best"] = min(values["best"], total)
        if values["bad"] == 2:
            checkpointer.stop()
    life.done(model)


def seeds_from_the_time_with_fixed_data(life):
    batches = loader(shuffle=False)
    random.seed(time.time())
    train(life, batches, model=net())


def path_in_values(life):
    model = net()
    optimizer = adam(model)
    batches = loader()
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    checkpointer.values["best"] = Path("best.pt")
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, y in checkpointer.batches(batches):
            step(optimizer, functional.mse_loss(model(x), y))
            life.tick()
    life.done(model)


def no_batches_at_all(life):
    model = net()
    optimizer = adam(model)
    batches = loader()
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, y in batches:
            step(optimizer, functional.mse_loss(model(x), y))
            life.tick()
    life.done(model)


def compiled(life):
    train(life, model=torch.compile(net(), backend="eager"))


def curriculum_by_epoch(life):
    model = net()
    optimizer = adam(model)
    samples = data()
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for epoch in checkpointer.epochs(EPOCHS, tracker=False):
        easy = torch.utils.data.Subset(samples, range(12 + 6 * epoch))
        for x, y in checkpointer.batches(loader(easy)):
            step(optimizer, functional.mse_loss(model(x), y))
            life.tick()
    life.done(model)


# -- A resume differs --


def scheduler_not_passed(life):
    model = net()
    optimizer = adam(model)
    scheduler = lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=19)
    batches = loader()
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, y in checkpointer.batches(batches):
            step(optimizer, functional.mse_loss(model(x), y))
            scheduler.step()
            life.tick()
    life.done(model)


def enumerate_counts_anew(life):
    model = net()
    optimizer = adam(model)
    batches = loader()
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for epoch in checkpointer.epochs(EPOCHS, tracker=False):
        for number, (x, y) in enumerate(checkpointer.batches(batches)):
            done = (epoch + number / BATCHES) / EPOCHS
            for group in optimizer.param_groups:
                group["lr"] = 0.005 * (1 + math.cos(math.pi * done))
            step(optimizer, functional.mse_loss(model(x), y))
            life.tick()
    life.done(model)


def generator_of_the_loop(life):
    model = net()
    optimizer = adam(model)
    batches = loader()
    generator = np.random.RandomState(0)
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, y in checkpointer.batches(batches):
            share = float(generator.beta(0.4, 0.4))
            step(optimizer, functional.mse_loss(model(share * x + (1 - share) * x.flip(0)), y))
            life.tick()
    life.done(model)


class OwnDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)

    def forward(self, x):
        return x * (torch.rand(x.shape, generator=self.generator) > 0.2)


def generator_of_the_model(life):
    train(life, model=net(OwnDropout()))


def truncated_backpropagation(life):
    recurrent, head = nn.LSTM(6, 8), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*recurrent.parameters(), *head.parameters()], 0.1)
    batches = loader(shuffle=False)
    checkpointer = life.checkpointer(model=[recurrent, head], optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        hidden = None
        for x, y in checkpointer.batches(batches):
            made, hidden = recurrent(x[None], hidden)
            hidden = tuple(part.detach() for part in hidden)
            step(optimizer, functional.mse_loss(head(made[0]), y))
            life.tick()
    life.done(recurrent, head)


def average_not_passed(life):
    average_that_is_passed(life, passes=False)


def teacher_not_passed(life):
    model, batches = net(), loader()
    teacher = copy.deepcopy(model)
    optimizer = adam(model)
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, y in checkpointer.batches(batches):
            made = model(x)
            step(optimizer, functional.mse_loss(made, y) + functional.mse_loss(made, teacher(x).detach()))
            with torch.no_grad():
                for mean, new in zip(teacher.parameters(), model.parameters(), strict=True):
                    mean.lerp_(new, 0.1)
            life.tick()
    life.done(model)


def early_stopping_in_a_variable(life):
    early_stopping_in_values(life, keeps=False)


class Criterion(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(()))

    def forward(self, made, wanted):
        loss = functional.mse_loss(made, wanted)
        self.scale.mul_(0.9).add_(0.1 * loss.detach())
        return loss / self.scale


def criterion_with_state(life):
    train(life, loss=Criterion())


class CountingSampler(Sampler):
    def __init__(self):
        self.weights = torch.ones(24)

    def __iter__(self):
        chosen = torch.multinomial(self.weights, 24).tolist()
        self.weights[chosen[:4]] += 5
        return iter(chosen)

    def __len__(self):
        return 24


def sampler_whose_weights_change(life):
    train(life, loader(shuffle=False, sampler=CountingSampler()))


def order_from_a_set(life):
    samples = data()
    names = {f"sample {number}" for number in range(24)}
    train(life, loader([samples[int(name.split()[1])] for name in names], shuffle=False))


def another_iterator_beside(life):
    model, batches = net(), loader()
    optimizer = adam(model)
    beside = itertools.cycle(loader(batch_size=8))
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, y in checkpointer.batches(batches):
            step(optimizer, functional.mse_loss(model(x + next(beside)[0][:4]), y))
            life.tick()
    life.done(model)


def list_shuffled_by_the_loop(life):
    model = net()
    optimizer = adam(model)
    batches = list(loader())
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        random.shuffle(batches)
        for x, y in checkpointer.batches(batches):
            step(optimizer, functional.mse_loss(model(x), y))
            life.tick()
    life.done(model)


def fetched_ahead(life):
    model, batches = net(), loader()
    optimizer = adam(model)
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        waiting = []
        for batch in checkpointer.batches(batches):
            waiting.append(batch)
            if len(waiting) == 2:
                x, y = waiting.pop(0)
                step(optimizer, functional.mse_loss(model(x), y))
            life.tick()
        for x, y in waiting:
            step(optimizer, functional.mse_loss(model(x), y))
    life.done(model)


def history_of_losses(life):
    model, batches = net(), loader()
    optimizer = adam(model)
    history = defaultdict(list)
    checkpointer = life.checkpointer(model=model, optimizer=optimizer)
    for _ in checkpointer.epochs(EPOCHS, tracker=False):
        for x, y in checkpointer.batches(batches):
            loss = functional.mse_loss(model(x), y)
            history["loss"].append(loss.item())
            step(optimizer, loss * min(1.0, 1.0 / len(history["loss"])))
            life.tick()
    life.done(model)


IDENTICAL = [
    *(plain, dropout_and_batch_norm, workers, augmentation_by_numpy_and_python, weighted_sampler),
    *(generator_of_the_loader, iterable_data_set, scheduler_on_plateau, lbfgs, accumulation_across_a_checkpoint),
    *(scaler_on_the_cpu, gan, gan_that_leaves_gradients, sparse_embeddings, lazy_modules, groups_from_a_set),
    *(unfrozen_at_an_epoch, unfrozen_without_a_group, numbers_of_a_module, average_that_is_passed),
    *(early_stopping_in_values, seeds_from_the_time_with_fixed_data, path_in_values, no_batches_at_all, compiled),
    *(curriculum_by_epoch, generator_in_the_data_set_with_workers),
]
DIFFERING = [
    *(scheduler_not_passed, enumerate_counts_anew, generator_of_the_loop, generator_of_the_model),
    *(truncated_backpropagation, average_not_passed, teacher_not_passed, early_stopping_in_a_variable),
    *(criterion_with_state, sampler_whose_weights_change, order_from_a_set, another_iterator_beside),
    *(list_shuffled_by_the_loop, fetched_ahead, history_of_losses),
]
SHAPES = {shape.__name__: shape for shape in (*IDENTICAL, *DIFFERING)}


def main(words=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("directory")
    parser.add_argument("--kill-at", type=int, default=0)
    parser.add_argument("--by", type=int, default=int(signal.SIGKILL))
    parser.add_argument("--saves-each-epoch", action="store_true")
    given = parser.parse_args(words)
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    torch.set_num_threads(1)
    Path(given.directory).mkdir(parents=True, exist_ok=True)
    life = functools.partial(Life, given.directory, given.kill_at, given.by)
    SHAPES[given.shape](life(saves_each_epoch=given.saves_each_epoch))


if __name__ == "__main__":
    main()

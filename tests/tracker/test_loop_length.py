"""How many epochs the loop of a script has: what shows in it, and what does not."""

from __future__ import annotations

import functools
import linecache
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import FakeClock, make_tracker, only_run
from tqdm import tqdm, trange

from greenlove_tracker.integrations.script_loops import length_by_arguments
from greenlove_tracker.tracker.loop_length import loop_length

LOADER = ["batch"]


def found_in(script: str, loader: object = LOADER) -> list[tuple[int, str] | None]:
    """Run a script that calls ``here()``, and return what is found at each call."""
    found = []

    def here() -> None:
        found.append(loop_length(sys._getframe(1), loader))

    name = "/home/ada/train.py"
    linecache.cache[name] = (len(script), None, script.splitlines(keepends=True), name)
    known = {"here": here, "tqdm": tqdm, "trange": trange, "args": SimpleNamespace(n=3, cfg={"n": 2}), "loader": LOADER}
    exec(compile(script, name, "exec"), known)
    return found


@pytest.mark.parametrize(
    ("iterated", "n"),
    [
        ("range(args.n)", 3),
        ("range(1, args.n + 1)", 3),
        ("range(args.cfg['n'], 6, 2)", 2),
        ("trange(args.n, disable=True)", 3),
        ("enumerate(tqdm(range(4), disable=True))", 4),
        ("epochs", None),
        ("numbers", 4),
        ("bar", 4),
        ("(named := tqdm(range(3), disable=True))", 3),
        ("iter(epochs)", None),
        ("range(int('3'))", None),
    ],
)
def test_the_loop_around_the_call_has_the_number(iterated, n):
    before = "epochs, numbers = list(range(5)), range(4); bar = tqdm(numbers, disable=True)"
    found = found_in(f"{before}\nfor epoch in {iterated}:\n    for batch in loader:\n        here()\n")
    assert found[0] == (n and (n, f"{iterated}, train.py:2"))


@pytest.mark.parametrize("outer", ["for fold in range(5):", "while not seen:"])
def test_of_two_loops_neither_is_taken(outer):
    loops = f"seen = 0\n{outer}\n  seen = 1\n  for epoch in range(2):\n    for batch in loader:\n      here()\n"
    assert found_in(loops) == [None] * (10 if "fold" in outer else 2)


@pytest.mark.parametrize(
    ("inner", "n"),
    [
        ("for batch in loader:\n      here()", 3),
        ("for i, batch in enumerate(tqdm(loader, disable=True)):\n      for part in range(2): here()", 3),
        ("for step in range(9):\n      here()", None),
    ],
)
def test_the_loop_of_epochs_is_the_one_around_that_of_the_loader(inner, n):
    script = f"def one_epoch(loader):\n    {inner}\nfor epoch in range(args.n):\n    one_epoch(loader)\n"
    found = found_in(script, LOADER)
    assert found[0] == (n and (n, found[0][1]))


def test_a_tracker_without_epochs_takes_those_of_its_loop(tmp_path):
    clock = FakeClock()
    with make_tracker(clock, tmp_path, epochs=None) as tracker:
        for _ in range(3):
            tracker.epoch_start()
            clock.pass_s(10.0)
            tracker.epoch_end()
    assert tracker.summary.epochs_planned == 3


def planned_by(script: str, log_dir: Path, **given: Any) -> int | None:
    """Run a script with a tracker that these epochs are given to, and return how many are planned at its end."""
    name = "/home/ada/train.py"
    linecache.cache[name] = (len(script), None, script.splitlines(keepends=True), name)
    with make_tracker(FakeClock(), log_dir, **given) as tracker:
        exec(compile(script, name, "exec"), {"tracker": tracker})
    return tracker.summary.epochs_planned


EPOCH = "tracker.epoch_start(); tracker.epoch_end()"


@pytest.mark.parametrize(
    ("script", "rounds"),
    [
        (f"for epoch in range(8, 12): {EPOCH}", 4),
        (f"for epoch in range(8, 12):\n  {EPOCH}\n  if epoch == 9: break", 4),
        (f"for epoch in range(8, 12):\n  if epoch != 9:\n    {EPOCH}", 4),
        (f"def train(start, end):\n  for epoch in range(start, end): {EPOCH}\ntrain(8, 12)", 4),
        (f"for epoch in range(20): {EPOCH}", 20),
    ],
)
def test_where_the_loop_has_other_epochs_than_were_given_it_counts_with_one_warning(tmp_path, caplog, script, rounds):
    assert planned_by(script, tmp_path, epochs=12) == rounds
    assert caplog.text.count("Tracker(epochs=12), but the loop over range(") == 1
    assert f"train.py:{script.split('for ')[0].count(chr(10)) + 1}, has {rounds} rounds" in caplog.text
    assert only_run(tmp_path).text("epochs_planned") == f"{rounds}"


@pytest.mark.parametrize(
    "script",
    [
        f"for epoch in range(12):\n  {EPOCH}\n  if epoch == 3: break",
        f"for epoch in range(4): {EPOCH}\nfor epoch in range(8): {EPOCH}",  # which share them
        f"def stage(n):\n  for epoch in range(n): {EPOCH}\nstage(4)\nstage(8)",
        f"for step in range(120):\n  if step % 10 == 0:\n    {EPOCH}",
        f"for epoch in range(20):\n  {EPOCH}\n  if epoch == 11: break",
        f"for epoch in range(20):\n  if epoch < 8: continue\n  {EPOCH}",
        f"for fold in range(3):\n  for epoch in range(4): {EPOCH}",
        f"for epoch in list(range(4)): {EPOCH}",
    ],
)
def test_where_the_loop_is_not_certainly_all_of_the_training_the_number_that_was_given_counts(tmp_path, caplog, script):
    assert planned_by(script, tmp_path, epochs=12) == 12
    assert "the forecast goes by the loop" not in caplog.text


@pytest.mark.parametrize(
    ("given", "planned"),
    [
        ({"epochs": 12, "first_epoch": 2}, 10),
        ({"epochs": 12, "total_steps": 1200}, 12),
        ({"epochs": None, "phases": "12epochs"}, 12),
    ],
)
def test_who_gives_more_than_a_number_of_epochs_knows_better(tmp_path, caplog, given, planned):
    assert planned_by(f"for epoch in range(8, 12): {EPOCH}", tmp_path, **given) == planned
    assert "the forecast goes by the loop" not in caplog.text


def test_loops_of_who_calls_a_library_that_calls_say_nothing():
    call = functools.singledispatch(lambda _: loop_length(sys._getframe(1), None))
    assert [call(n) for n in range(2)] == [None, None]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("--lr 0.1 --epochs 2", (2, "the script's --epochs")),
        ("--niter=25", (25, "the script's --niter")),
        ("--num_epochs 3 --dry-run", (3, "the script's --num_epochs")),
        ("--num-train-epochs 3", (3, "the script's --num-train-epochs")),
        ("--max_epochs=0", None),
        ("--epochs-between-saves 5 --epochs", None),
        ("--n_epochs many", None),
    ],
)
def test_a_scripts_own_arguments_may_say_it(arguments, found):
    assert length_by_arguments(arguments.split()) == found

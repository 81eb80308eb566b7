"""How many epochs the loop of a script has: what shows in it, and what does not."""

from __future__ import annotations

import functools
import linecache
import sys
from types import SimpleNamespace

import pytest
from fakes import FakeClock, make_tracker
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


@pytest.mark.parametrize(("given", "planned"), [(None, 3), (7, 7)])
def test_a_tracker_without_epochs_takes_those_of_its_loop(tmp_path, given, planned):
    clock = FakeClock()
    with make_tracker(clock, tmp_path, epochs=given) as tracker:
        for _ in range(3):
            tracker.epoch_start()
            clock.pass_s(10.0)
            tracker.epoch_end()
    assert tracker.summary.epochs_planned == planned


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

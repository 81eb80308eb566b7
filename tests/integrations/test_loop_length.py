"""How many epochs the loop of a script has: what shows in it, and what does not."""

from __future__ import annotations

import linecache
import sys
from types import SimpleNamespace

import pytest
from tqdm import tqdm, trange

from greenlove_tracker.integrations.loop_length import loop_length

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
        ("iter(epochs)", None),
        ("range(int('3'))", None),
    ],
)
def test_the_loop_around_the_call_has_the_number(iterated, n):
    found = found_in(f"epochs = list(range(5))\nfor epoch in {iterated}:\n    for batch in loader:\n        here()\n")
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

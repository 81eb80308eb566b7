"""How many epochs the loop of a script has, read from its source: Python does not show what a running loop iterates."""

from __future__ import annotations

import ast
import linecache
import re
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_NOT_OF_SCRIPT = (str(Path(__file__).parents[1]), *_LIBRARIES, "<frozen")
_RANGES = {"range", "trange"}
_WRAPPERS = {"tqdm", "enumerate"}  # which hand on as many as their first argument
# What may be evaluated once more: it calls nothing of the script's but what gives an attribute or an item.
_OPERATORS = ast.operator | ast.unaryop | ast.expr_context
_EVALUATED = ast.Name | ast.Attribute | ast.Subscript | ast.Constant | ast.BinOp | ast.UnaryOp | _OPERATORS
_LOOPS = ast.For | ast.While
_AROUND = _LOOPS | ast.FunctionDef | ast.AsyncFunctionDef


class LoopLength(NamedTuple):
    """The epochs of a loop, and where that is read."""

    epochs: int
    source: str


def loop_length(frame: FrameType | None, loader: object) -> LoopLength | None:
    """Return the epochs of the loop around that over a loader, and where that is read; None where it does not show.

    Args:
        frame: that called, within the loop over the loader. Nothing is looked for outside of the script, whose callers'
            loops count too.
        loader: whose batches the call is for; the loop over it, and those within, are not meant, and libraries that the
            script calls for a step may lie between. None: the script itself calls, in its loop of epochs.
    """
    while loader is not None and frame is not None and not _is_of_script(frame):
        frame = frame.f_back
    loops: list[tuple[Any, FrameType]] = []
    while frame is not None and _is_of_script(frame):
        loops += [(loop, frame) for loop in _loops_around(frame)]
        frame = frame.f_back
    if loader is not None:
        inner = next((i for i, found in enumerate(loops) if _iterates(*found, loader)), len(loops))
        loops = loops[inner + 1 :]
    if len(loops) != 1 or isinstance(loops[0][0], ast.While):
        return None
    loop, frame = loops[0]
    n_epochs = _length(loop.iter, frame)
    if not n_epochs:
        return None
    return LoopLength(n_epochs, f"{ast.unparse(loop.iter)}, {Path(frame.f_code.co_filename).name}:{loop.lineno}")


def overrules(found: LoopLength, given: int, frame: FrameType) -> bool:
    """Return True where a loop certainly has other epochs than were given, so that its number counts.

    A loop of fewer rounds may be one of several that share the epochs; so it must be the only one. One of more rounds
    may be left early, or pass some over; so ``epoch_start()`` must be its first statement, and nothing in it leaves it.

    Args:
        found: by ``loop_length(frame, None)``.
        given: epochs.
        frame: that called ``epoch_start()``.
    """
    if found.epochs < given:
        return _is_only_loop(frame)
    loops = _loops_around(frame)
    if found.epochs == given or not loops or loops[0].body[0].lineno != frame.f_lineno:
        return False
    return not any(isinstance(node, ast.Break | ast.Return) for node in ast.walk(loops[0]))


def _is_only_loop(frame: FrameType | None) -> bool:
    """Return True where ``epoch_start``, and each function around its call, is called at one place of a file."""
    called = "epoch_start"
    while frame is not None and _is_of_script(frame) and called != "<module>":  # which is run once
        calls = re.findall(rf"(?<!def )\b{called}\(", _source(frame))
        if len(calls) > 1:
            return False
        called = frame.f_code.co_name
        frame = frame.f_back
    return True


def _is_of_script(frame: FrameType) -> bool:
    return not frame.f_code.co_filename.startswith(_NOT_OF_SCRIPT)


def _source(frame: FrameType) -> str:
    return "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))


def _loops_around(frame: FrameType) -> list[Any]:
    """Return the loops of this function around the line that it is at, the innermost first."""
    try:
        tree = ast.parse(_source(frame))
    except (SyntaxError, ValueError):
        return []
    line = frame.f_lineno
    loops = list[Any]()
    for node in ast.walk(tree):  # what is around a line comes from the outside in
        if isinstance(node, _AROUND) and node.lineno <= line <= (node.end_lineno or 0):
            loops = [node, *loops] if isinstance(node, _LOOPS) else []
    return loops


def _iterates(loop: ast.For | ast.While, frame: FrameType, loader: object) -> bool:
    """Return True of a loop over the loader, or over what is made of it, such as ``enumerate(loader)``."""
    if isinstance(loop, ast.While):
        return False
    for node in ast.walk(loop.iter):
        if isinstance(node, ast.Name | ast.Attribute):
            value = _value(node, frame)
            within_bar = getattr(value, "iterable", None)  # of tqdm
            within_loader = getattr(value, "base_dataloader", None)  # of accelerate
            if value is loader or within_bar is loader or within_loader is loader:
                return True
    return False


def _length(iterated: ast.expr, frame: FrameType) -> int | None:
    """Return the length of a ``range``, also of one in a progress bar, or of either in a variable; else None."""
    if isinstance(iterated, ast.NamedExpr):
        iterated = iterated.value
    if not isinstance(iterated, ast.Call):
        value = _value(iterated, frame)
        value = getattr(value, "iterable", value)  # of a bar of tqdm
        return len(value) if isinstance(value, range) else None
    name = getattr(iterated.func, "id", "")
    if name in _WRAPPERS and iterated.args:
        return _length(iterated.args[0], frame)
    bounds = [_value(argument, frame) for argument in iterated.args]
    is_range = name in _RANGES and bounds and all(isinstance(bound, int) for bound in bounds)
    return len(range(*bounds)) if is_range else None


def _value(expression: ast.expr, frame: FrameType) -> Any:
    """Return what a plain expression is in this frame; None where it is another, or is not there."""
    if not all(isinstance(node, _EVALUATED) for node in ast.walk(expression)):
        return None
    try:
        code = compile(ast.Expression(expression), frame.f_code.co_filename, "eval")
        return eval(code, frame.f_globals, frame.f_locals)  # noqa: S307  # names and items of the script's own
    except Exception:  # of the script's own objects
        return None

"""Find the number of epochs of a script's loop in its source: Python does not tell what a running loop iterates."""

from __future__ import annotations

import ast
import linecache
import re
import site
import sysconfig
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
NOT_OF_SCRIPT = (
    str(Path(__file__).parents[1]),
    *_LIBRARIES,
    *site.getsitepackages(),
    site.getusersitepackages(),
    "<frozen",
)
_RANGES = {"range", "trange"}
_WRAPPERS = {"tqdm", "enumerate"}  # they yield as many items as their first argument
# Expressions that are safe to evaluate again: of the script's code they call only attribute and item access.
_OPERATORS = ast.operator | ast.unaryop | ast.expr_context
_EVALUATED = ast.Name | ast.Attribute | ast.Subscript | ast.Constant | ast.BinOp | ast.UnaryOp | _OPERATORS
_LOOPS = ast.For | ast.While
_AROUND = _LOOPS | ast.FunctionDef | ast.AsyncFunctionDef


class LoopLength(NamedTuple):
    """The number of epochs of a loop, and the place in the source."""

    epochs: int
    source: str


def loop_length(frame: FrameType | None, loader: object) -> LoopLength | None:
    """Return the number of epochs of the loop of epochs around a call; None if it cannot be found.

    Args:
        frame: the frame that called. Loops of the script's functions up the stack are searched, those of libraries not.
        loader: the loader whose batches are being trained. The loop of epochs lies outside the loop over this loader,
            and library code may lie in between. None: the script itself calls, in its loop of epochs.
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
    """Return True if the loop certainly has another number of epochs than was given, so that the loop counts.

    A loop with fewer rounds may be one of several that share the epochs, so it must be the only one. A loop with more
    rounds may end early or skip rounds, so ``epoch_start()`` must be its first statement, and nothing may leave it.

    Args:
        found: the result of ``loop_length(frame, None)``.
        given: the number of epochs that was given.
        frame: the frame that called ``epoch_start()``.
    """
    if found.epochs < given:
        return _is_only_loop(frame)
    loops = _loops_around(frame)
    if found.epochs == given or not loops or loops[0].body[0].lineno != frame.f_lineno:
        return False
    return not any(isinstance(node, ast.Break | ast.Return) for node in ast.walk(loops[0]))


def _is_only_loop(frame: FrameType | None) -> bool:
    """Return True if ``epoch_start``, and each function around its call, is called at only one place of its file."""
    called = "epoch_start"
    while frame is not None and _is_of_script(frame) and called != "<module>":  # module code runs once
        calls = re.findall(rf"(?<!def )\b{called}\(", _source(frame))
        if len(calls) > 1:
            return False
        called = frame.f_code.co_name
        frame = frame.f_back
    return True


def _is_of_script(frame: FrameType) -> bool:
    return not frame.f_code.co_filename.startswith(NOT_OF_SCRIPT)


def _source(frame: FrameType) -> str:
    return "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))


def _loops_around(frame: FrameType) -> list[Any]:
    """Return the loops around the current line of a frame's function, the innermost first."""
    try:
        tree = ast.parse(_source(frame))
    except (SyntaxError, ValueError):
        return []
    line = frame.f_lineno
    loops = list[Any]()
    for node in ast.walk(tree):  # outer loops come before inner ones
        if isinstance(node, _AROUND) and node.lineno <= line <= (node.end_lineno or 0):
            loops = [node, *loops] if isinstance(node, _LOOPS) else []
    return loops


def _iterates(loop: ast.For | ast.While, frame: FrameType, loader: object) -> bool:
    """Return True if a loop iterates over the loader or a wrapper of it, such as ``enumerate(loader)``."""
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
    """Return the length of a ``range``, also within a progress bar or a variable; else None."""
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
    """Return the value of a plain expression in this frame; None if it is not plain or cannot be evaluated."""
    if not all(isinstance(node, _EVALUATED) for node in ast.walk(expression)):
        return None
    try:
        code = compile(ast.Expression(expression), frame.f_code.co_filename, "eval")
        return eval(code, frame.f_globals, frame.f_locals)  # noqa: S307  # names and items of the script's own
    except Exception:  # an error of the script's own objects
        return None
